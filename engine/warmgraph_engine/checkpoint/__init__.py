"""Reading Hugging Face checkpoint folders, without torch."""
