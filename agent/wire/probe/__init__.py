"""What a server does where the specification states a rule, and where it leaves the choice open."""
