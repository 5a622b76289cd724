"""A small LLM trainer that uses the agent."""
