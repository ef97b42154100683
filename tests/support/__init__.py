"""What tests share: real servers, a world of services, processes to kill, invariants."""
