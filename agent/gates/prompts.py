"""What a server is asked to answer before it is measured: fixed, so that its answers can be held against earlier ones.

The mixture is that of a serving workload: chat, code, mathematics, translation, logs and lists, short and long. Order
matters to files that exist already; new ones go to the end.
"""

from __future__ import annotations

PROMPTS: tuple[str, ...] = (
    "Explain in three sentences what a KV cache is for.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train leaves at 14:05 and arrives at 17:50. How long does it travel?",
    "List four causes of tail latency in a web service.",
    "Translate into French: the server is ready.",
    "What is the derivative of x squared times sine x?",
    "Write a shell command that counts the lines of all .log files below this folder.",
    "Summarise the idea of speculative decoding for a colleague.",
    'def binary_search(values: list[int], wanted: int) -> int:\n    """Return the index of wanted, or -1."""\n',
    "User: My train was cancelled and I have a meeting at nine. What should I do first?\nAssistant:",
    "Solve for x and show each step: 3(x - 4) + 2 = 5x - 20.",
    "Traduis en anglais : « Le pont est fermé jusqu'à lundi, prenez la route du nord. »",
    "[2026-03-02 11:40:07] WARN pool: 118 of 120 connections in use\n"
    "[2026-03-02 11:40:09] ERROR api: timeout after 2000 ms\nWhat does this log tell an operator?",
    "Name the eight planets, from the Sun outwards, one a line, each with one fact.",
    "Erkläre in einfachen Worten, warum der Himmel blau ist und der Abend rot.",
    "SELECT customer, SUM(amount) FROM orders GROUP BY customer; Explain this query, then sort it by the sum.",
    "Continue the story: The lighthouse keeper had not seen a ship in eleven days when, at dusk,",
    "Write a haiku about rain on a tin roof.",
    "Hello!",
    "A fair coin is tossed five times. What is the probability of exactly three heads?",
    "Turn this into a JSON object: Ada Lovelace, born 1815 in London, mathematician.",
    "Rewrite politely: Send me the report now, you are late again.",
    "Write a C function that reverses a string in place, and say what it costs in time and memory.",
    "Schreibe eine kurze E-Mail, in der du einen Termin von Dienstag auf Donnerstag verschiebst.",
    "What is the difference between a process and a thread? Answer with a short table.",
    "The quick brown fox jumps over the lazy dog. Count the letters of each word.",
    "Below is a review. Say whether it is positive or negative, and quote the words that show it.\n\n"
    "The room was smaller than in the pictures and the lift did not work for two days. Still, the people at the desk "
    "were the kindest I have met, breakfast was fresh every morning, and from the window we could see the whole "
    "harbour. We paid more than we had planned. We would come again, but in spring and with less luggage.",
    "1, 1, 2, 3, 5, 8, 13, 21, 34,",
    "Give me a recipe for lentil soup for four people, with amounts in grams and numbered steps.",
    "Why does a GPU decode one token at a time no faster when its compute units double but its memory stays the same? "
    "Think about what is read from memory for each token, and put numbers to it for a model of 32 billion parameters "
    "with 4 bits each on a card with 1.8 TB a second.",
    "Écris trois phrases sur la mer, sans utiliser le mot « bleu ».",
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n"
    "        self._items.append(item)\n\n    def pop(self):\n",
)
