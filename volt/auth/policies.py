"""Who may do what: rules of routes, which a policy file may change.

Rules see the roles of who asks, the host that they speak for (none but hosts have one) and,
as their target, the host that the request is about.
"""

from typing import Final

from oslo_config import cfg
from oslo_policy import policy

from volt.errors import PolicyInvalid

OPERATOR: Final = "rule:operator"
READER: Final = "rule:reader"
OWN_HOST: Final = "rule:operator or rule:own_host"
ANYBODY: Final = "rule:reader or role:host"

_GROUPS: Final = [
    policy.RuleDefault("operator", "role:operator or role:admin", "Runs Volt."),
    policy.RuleDefault("reader", "role:reader or rule:operator", "Sees all but secrets."),
    policy.RuleDefault("own_host", "role:host and host:%(host)s", "A host that asks about itself."),
]


def _rule(
    name: str, check: str, method: str, path: str, description: str, *others: str
) -> policy.DocumentedRuleDefault:
    """Return the rule of a route, and of others with the same method."""
    operations: list[policy.Operation] = [
        {"method": method, "path": each} for each in (path, *others)
    ]
    return policy.DocumentedRuleDefault(name, check, description, operations)


_IMAGE: Final = "/v1/images/{image}"
_PLACE: Final = "/v1/images/{image}/hosts/{host}"
_PROFILES: Final = f"{_IMAGE}/profiles"
_PROFILE: Final = f"{_PROFILES}/{{workload}}"
_HOST: Final = "/v1/hosts/{host}"
_IMPORT: Final = "/v1/imports/{image}"
_CAPPED: Final = (f"{_IMAGE}/cap", "/v1/racks/{rack}/cap", f"{_HOST}/cap")

_RULES: Final = [
    _rule("image:create", OPERATOR, "POST", "/v1/images", "Make an image known."),
    _rule("image:list", READER, "GET", "/v1/images", "List images."),
    _rule("image:show", ANYBODY, "GET", _IMAGE, "Show an image."),
    _rule("image:hashes", ANYBODY, "GET", f"{_IMAGE}/hashes", "Show an image's upper hashes."),
    _rule("image:basis", ANYBODY, "GET", f"{_IMAGE}/basis", "Show what an image has of others."),
    _rule("image:delete", OPERATOR, "DELETE", _IMAGE, "Forget an image."),
    _rule("image:withdraw", OPERATOR, "DELETE", f"{_IMAGE}/source", "Have its source go."),
    _rule("image:rotate", OPERATOR, "POST", f"{_IMAGE}/chap", "Renew an image's CHAP secret."),
    _rule("image:rehome", OPERATOR, "PUT", f"{_IMAGE}/home", "Have a host stand for a source."),
    _rule("image:hydrate", OPERATOR, "PUT", f"{_IMAGE}/hydrate", "Have hosts copy an image."),
    _rule("image:dehydrate", OPERATOR, "DELETE", f"{_IMAGE}/hydrate", "Have no more copy it."),
    _rule("image:copies", READER, "GET", f"{_IMAGE}/copies", "List who has copies of an image."),
    _rule("layer:keep", OWN_HOST, "PUT", f"{_IMAGE}/makers/{{host}}", "Make a layer known."),
    _rule("layer:drop", OWN_HOST, "DELETE", f"{_IMAGE}/makers/{{host}}", "Forget a layer."),
    _rule("image:trees", READER, "GET", f"{_IMAGE}/trees", "Show an image's trees."),
    _rule(
        "image:parents",
        "rule:reader or rule:own_host",
        "GET",
        f"{_IMAGE}/parents",
        "Search the best parents for a host.",
    ),
    _rule(
        "profile:read",
        ANYBODY,
        "GET",
        _PROFILES,
        "List and fetch an image's boot profiles.",
        _PROFILE,
        f"{_PROFILE}/history",
    ),
    _rule("profile:store", "rule:operator or role:host", "PUT", _PROFILE, "Store a boot profile."),
    _rule("profile:remove", OPERATOR, "DELETE", _PROFILE, "Remove a boot profile."),
    _rule("warmup:ask", OPERATOR, "POST", f"{_IMAGE}/warmups", "Ask hosts to warm an image."),
    _rule("warmup:list", READER, "GET", f"{_IMAGE}/warmups", "List who warms an image."),
    _rule("warmup:tell", OWN_HOST, "PUT", f"{_IMAGE}/warmups/{{host}}", "Say how far a host is."),
    _rule("placement:show", OWN_HOST, "GET", _PLACE, "Show a placement, with CHAP secrets."),
    _rule("placement:join", OWN_HOST, "PUT", _PLACE, "Join an image's trees."),
    _rule("placement:change", OWN_HOST, "PATCH", _PLACE, "Be ready, or leave."),
    _rule("placement:remove", OWN_HOST, "DELETE", _PLACE, "Give a place up."),
    _rule("placement:report", OWN_HOST, "POST", f"{_PLACE}/reports", "Report a dead parent."),
    _rule("host:heartbeat", OWN_HOST, "PUT", f"{_HOST}/heartbeat", "Report a host's state."),
    _rule(
        "host:placements",
        OWN_HOST,
        "GET",
        f"{_HOST}/placements",
        "Wait for a host's placements, with CHAP secrets.",
    ),
    _rule("host:list", READER, "GET", "/v1/hosts", "List hosts."),
    _rule("host:show", "rule:reader or rule:own_host", "GET", _HOST, "Show a host."),
    _rule(
        "host:holds",
        "rule:reader or rule:own_host",
        "GET",
        f"{_HOST}/holds",
        "List which images a host needs.",
    ),
    _rule("host:change", OPERATOR, "PATCH", _HOST, "Drain a host."),
    _rule("hold:list", READER, "GET", "/v1/holds", "List which hosts need which images."),
    _rule(
        "hold:release",
        OWN_HOST,
        "DELETE",
        f"{_IMAGE}/holds/{{host}}",
        "Let go of what a host needed, itself or once it is lost.",
    ),
    _rule("import:list", READER, "GET", "/v1/imports", "List images that hosts wait for."),
    _rule("import:show", ANYBODY, "GET", _IMPORT, "Show how far an image is."),
    _rule("import:tell", OPERATOR, "PUT", _IMPORT, "Say how far an image is."),
    _rule("import:retry", OPERATOR, "POST", f"{_IMPORT}/retry", "Have an image tried anew."),
    _rule("cap:list", READER, "GET", "/v1/caps", "List caps."),
    _rule("cap:set", OPERATOR, "PUT", _CAPPED[0], "Cap what is fetched ahead.", *_CAPPED[1:]),
    _rule("cap:clear", OPERATOR, "DELETE", _CAPPED[0], "Remove a cap.", *_CAPPED[1:]),
    _rule(
        "peer:certify", OWN_HOST, "PUT", f"{_HOST}/certificate", "Get a certificate for an agent."
    ),
    _rule(
        "peer:revoke", OPERATOR, "DELETE", f"{_HOST}/certificate", "Have agents trust it no more."
    ),
    _rule("peer:listener", ANYBODY, "GET", f"{_HOST}/listener", "Show where an agent listens."),
    _rule("event:list", READER, "GET", "/v1/events", "List events."),
    _rule("metrics:show", READER, "GET", "/metrics", "Show metrics."),
]


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules, also for oslopolicy-sample-generator."""
    return [*_GROUPS, *_RULES]


def load(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return the rules as the policy file has them; raises PolicyInvalid.

    They stay as they are then, since decisions are kept: a reload starts new workers.
    """
    enforcer = policy.Enforcer(conf)
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(list_rules())
    try:
        enforcer.load_rules()
        enforcer.check_rules(raise_on_violation=True)
    # AttributeError and TypeError are how oslo.policy fails on a file that holds no mapping,
    # and on a rule that is a number.
    except (
        ValueError,
        AttributeError,
        TypeError,
        OSError,
        cfg.Error,
        policy.InvalidDefinitionError,
    ) as err:
        raise PolicyInvalid(
            f"policy file {conf.oslo_policy.policy_file} cannot be used: {err}"
        ) from err
    enforcer.use_conf = False
    return enforcer
