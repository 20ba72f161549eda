"""The grammar of a recorded request: the scheduler asks it only whether it takes the tokens."""

from collections.abc import Sequence


class ScriptedGrammar:
    """Takes every token until `rejecting` is set."""

    def __init__(self) -> None:
        self.rejecting = False

    def accept_tokens(self, request_id: str, tokens: Sequence[int]) -> bool:
        return not self.rejecting

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The drafts that the grammar lets through: all."""
        return tokens

    def rollback(self, num_tokens: int) -> None:
        pass

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        pass
