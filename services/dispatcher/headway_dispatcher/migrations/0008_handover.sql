-- What a process publishes right after its commit is deleted by the id of the message.

CREATE INDEX outbox_message_id ON dispatcher.outbox (message_id);
