"""Permissions as the broker checks them, made once per set of rules and shared by its clients."""

from collections.abc import Iterable

from mq9._core import Permissions
from mq9.config import Authorization, ConfigError, PermissionRules


class PermissionTable:
    """The permissions of a configuration; making it finds the rules that are not valid."""

    def __init__(self, authorization: Authorization) -> None:
        self._made: dict[PermissionRules, Permissions] = {}
        for rules in _all_rules(authorization):
            self.of(rules)

    def of(self, rules: PermissionRules | None) -> Permissions | None:
        """The permissions for these rules; None, as without rules, is everything."""
        if rules is None:
            return None
        if rules not in self._made:
            try:
                self._made[rules] = Permissions(**vars(rules))
            except ValueError as error:
                raise ConfigError(str(error)) from error
        return self._made[rules]


def _all_rules(authorization: Authorization) -> Iterable[PermissionRules]:
    rules = [authorization.default_permissions, *(user.permissions for user in authorization.users)]
    return [rule for rule in rules if rule is not None]
