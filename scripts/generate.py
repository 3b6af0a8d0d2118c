"""A private prompt continued by a small GPT-2 in another process. What `make generate` shows."""
import os

from two_processes import ROOT, Server, hushed, run

MODEL = ROOT / "data" / "gpt2-small"


def main():
    prompt = os.environ.get("PROMPT", "").strip() or "The server never sees"
    tokens = os.environ.get("TOKENS", "").strip() or "16"
    print("hushed serve      has the weights of data/gpt2-small\nhushed generate   has the prompt, and no weights\n")
    with Server(MODEL) as server:
        print(prompt, end="", flush=True)
        answer, cost = server.generate(prompt, "--max-tokens", tokens)
    [clear, *_] = hushed("clear", MODEL, "--max-tokens", tokens, prompt)
    same = clear["ids"] == [token["id"] for token in answer][: len(clear["ids"])]
    up, down = cost["bytes_up"] / 1e6, cost["bytes_down"] / 1e6
    print(f"""
{cost["prompt_tokens"]} + {cost["tokens"]} tokens: the first after {cost["first_token_seconds"]:.2f} s, then {cost["seconds_a_token"]:.2f} s each
client to server {up:.1f} MB, server to client {down:.1f} MB, {cost["rounds"]} rounds, keys included
the tokens are {"those" if same else "NOT those"} of the model in the clear

client   the prompt and the tokens of the answer; never a weight or a probability
server   the weights, the number of tokens of the prompt and of the answer, and when; never a token
Both processes follow the protocol here. SECURITY.md says what happens if one does not.""")


if __name__ == "__main__":
    run(main)
