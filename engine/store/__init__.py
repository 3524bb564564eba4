"""What outlives a request: prefixes of prompts that others may begin with."""
