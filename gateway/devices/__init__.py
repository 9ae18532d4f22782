"""The devices of a gateway: their tokens, how they are added, and what each is handed."""
