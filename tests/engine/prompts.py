"""What the real checkpoint is asked."""

PROMPTS = [
    "What is the capital of France?",
    "Name three colours.",
    "2 + 2 =",
    "Write a haiku about rain.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into Spanish.",
    "def fibonacci(n):",
    "The sun rises in the",
    "List the planets.",
    "What does a compiler do?",
    "Once upon a time",
    "Explain gravity to a child.",
    "1, 2, 3, 4,",
    "Wie heißt du?",
    "What is 17 * 23?",
    "Give me a word that rhymes with cat.",
    "Is water wet?",
    "🙂 means",
    "SELECT name FROM",
    "The quick brown fox jumps over the lazy dog. " * 6,
]
