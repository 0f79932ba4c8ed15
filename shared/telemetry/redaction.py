"""Takes secrets out of text that others read: logs, errors of commands, support bundles.

It knows a secret by its own form (a key, a token, user and password in a URL) or by the name before it
(`password=`, `"token": `, `Authorization: `). It takes a word too many rather than one too few.
"""

import re
from typing import Final

REDACTED: Final = "[redacted]"

_QUOTE: Final = r"(?:\\*[\"'])"
"""A quote, also one inside a JSON string."""

_NAMES: Final = (
    r"(?:pass(?:word|wd|phrase)|token|secret|(?:api|access|account|private|session|client|signing)[_-]?key"
    r"|client-key-data|id_rsa)"
)
"""How the name of a secret ends. `secretName` and `token_path` name no secret."""

_SEED: Final = rf"seed(?!{_QUOTE}?[ ]*[:=][ ]*\d+\b)"
"""Numbers are seeds of the simulator."""

_SCHEME: Final = r"(?:(?:basic|bearer|digest|negotiate|token)[ ]+)?+"

_HARMLESS: Final = (
    r"(?!\[redacted\]|\(redacted\)|[\[{]|(?:null|none|true|false|required|missing|invalid|must|unknown"
    r"|expired|not|no|is|may|cannot|wrong|denied)(?:[\s,;:}\])]|\Z))"
)
"""No value, one that is redacted already, the beginning of a list or object, or of a complaint."""

_QUOTED: Final = r"[bru]?\"(?:[^\"\\\n]|\\.)*\"?|[bru]?'(?:[^'\\\n]|\\.|'')*'?"

_WORD: Final = r"(?:(?!,\s*[\w.-]+[\"']?\s*[=:]|[\]}),;]*+(?:[\s\"'\\]|\Z))[^\s\"'\\])+"
"""Up to white space, a quote, closing brackets, or a comma before the next name."""

_FORMS: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[\s\S]{0,20000}?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|[\w+/=\s\\]*)"
    # A private key whose first lines are cut off.
    r"|(?:^[\w+/=]+\n){1,100}-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"|\bLS0tLS1CRUdJTi(?!BDRVJUSUZJQ0FU)[\w+/=]+"  # PEM in base64 that is not a certificate.
    r"|\bS[AOUXNC][A-Z2-7]{56}\b"  # A seed of NATS.
    r"|\beyJ[\w-]+(?:\.[\w-]*)+"  # A token of Kubernetes, OIDC or NATS.
    r"|\bsha256~[\w-]+"  # A token of OpenShift.
    r"|\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeprs]-)[\w-]{10,}"
    r"|\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"  # A password's hash in the configuration of NATS.
    r"|(?<=://)[^/\s\"'?#]*(?=@)"  # User and password in a URL.
    r"|(?<=://)[^/\s\"'@:]*:(?!\d+[/?#])[^\s\"'@]{0,200}(?=@)"  # The same, with a slash in the password.
    r"|(?<![\w./-])[\w.-]+:[^\s\"'/@:]+(?=@[\w.\[\]-]+:\d)",  # The same, without `nats://`.
    re.MULTILINE,
)

_HEADER: Final = re.compile(
    rf"(?i)(?P<name>\b(?:authorization|(?:set-)?cookie){_QUOTE}?[ ]*[:=][ ]*+{_QUOTE}?+{_SCHEME}){_HARMLESS}"
    r"[^\n\"'\\]+"
)
_BEARER: Final = re.compile(r"(?i)(?P<name>\bbearer )[^\s\"',]+")

_LINE: Final = re.compile(
    rf"(?im)^(?P<name>[ \t]*(?:- )?[\w.-]{{0,60}}(?:{_NAMES}|{_SEED}):[ \t]++){_HARMLESS}"
    r"(?:[|>][-+]?(?:\n[ \t]+\S.*)+|[^\s\"'].*)"
)
"""`password: ` and the rest of the line, or the block below it, as in YAML."""

_NAMED: Final = re.compile(
    rf"(?i)(?P<name>(?:{_NAMES}|{_SEED}){_QUOTE}?[ \t]*[:=][ \t]*+|(?<![\w-])--[\w-]{{0,40}}{_NAMES}[ ])"
    rf"(?:(?P<open>\\+[\"']).*?(?P=open)|(?P<quoted>{_QUOTED})|{_HARMLESS}{_WORD})"
)
"""A name and its value, in JSON, Python, a shell, a query, or structured logs."""


def redacted(text: str) -> str:
    """The text without keys, tokens and passwords. Redacting twice changes nothing more."""
    text = _FORMS.sub(REDACTED, text)
    for pattern in (_HEADER, _BEARER, _LINE, _NAMED):
        text = pattern.sub(_without_value, text)
    return text


def _without_value(found: re.Match[str]) -> str:
    """The name, and the quotes of the value: JSON stays JSON."""
    parts = found.groupdict()
    if quote := parts.get("open"):
        return f"{parts['name']}{quote}{REDACTED}{quote}"
    if quoted := parts.get("quoted"):
        quote = quoted.lstrip("bruBRU")[0]
        return f"{parts['name']}{quote}{REDACTED}{quote}"
    return f"{parts['name']}{REDACTED}"
