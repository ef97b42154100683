"""Client: requests to the services over NATS or HTTP, and transactional enqueue."""
