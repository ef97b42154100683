"""Commands that run one service, and how they reach their database and broker."""
