"""The zoo: tiny models trained here, so that KL, perplexity, acceptance and scores of tasks mean something in tests."""
