"""Command lines: bounded, on one line, without secrets."""

import time

import pytest

from swactor_diag.introspect._command_line import readable_command, split_cmdline


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("python", "w.py"), "python w.py"),
        (("run", "--token=abc"), "run --token=***"),
        (("run", "--api-key", "abc", "x"), "run --api-key *** x"),
        (("run", "--password", "--verbose"), "run --password --verbose"),
        (("env", "AWS_SECRET_ACCESS_KEY=abc", "run"), "env AWS_SECRET_ACCESS_KEY=*** run"),
        (("curl", "https://me:pw@host/x"), "curl https://***@host/x"),
        (("run", "--tokens-per-second", "5"), "run --tokens-per-second 5"),
        (("run", "--max_tokens=512", "--tokenizer", "gpt2"), "run --max_tokens=512 --tokenizer gpt2"),
        (("run", "--token", "12345678"), "run --token ***"),
        (("run", "--pass", "abc", "--bypass", "abc"), "run --pass *** --bypass abc"),
        (("run", "--token=a b"), "run --token=***"),
        (
            ("sh", "-c", "cd /x && API_KEY=abc ./run --token abc -v"),
            "sh -c cd /x && API_KEY=*** ./run --token *** -v",
        ),
        (("sh", "-c", "run --password 'a b'"), "sh -c run --password ***"),
        (("curl", "-H", "Authorization: Bearer abc"), "curl -H Authorization: ***"),
        (("run", '{"api_key": "abc", "n": 1}'), 'run {"api_key": ***, "n": 1}'),
        (("curl", "https://host/x?access_token=abc&n=1"), "curl https://host/x?access_token=***&n=1"),
        (("curl", "https://me:p@ss@host/x@y"), "curl https://***@host/x@y"),
        (("login", "hf_" + "a1" * 17), "login ***"),
        (("run", "http://token-service:8080/x"), "run http://token-service:8080/x"),
        (("curl", "-H", "Authorization:Bearer abcdef"), "curl -H Authorization:***"),
        (("curl", "-HX-Api-Key:abc"), "curl -HX-Api-Key:***"),
        (("curl", "-H", "Authorization: token abcdef"), "curl -H Authorization: ***"),
        (("curl", "-H", "Cookie: theme=dark; session=SECRET"), "curl -H Cookie: ***"),
        (("curl", '-HAuthorization: Digest realm="a", response=SECRET'), "curl -HAuthorization: ***"),
        (
            ("sh", "-c", "curl -H 'Authorization: Digest realm=\"a\", response=SECRET' https://host/x"),
            "sh -c curl -H 'Authorization: ***' https://host/x",
        ),
        (("sh", "-c", 'curl -H "Cookie: a=1; b=\\"2\\"" x'), 'sh -c curl -H "Cookie: ***" x'),
        (("sh", "-c", "A=1 PASSWORD=ab,cd run"), "sh -c A=1 PASSWORD=*** run"),
        (("sh", "-c", "A=1 PASSWORD='a b'cd run"), "sh -c A=1 PASSWORD=*** run"),
        (("sh", "-c", "echo password = abc; run"), "sh -c echo password = ***; run"),
        (("run", '{"api_key": "a\\"bc", "n": 1}'), 'run {"api_key": ***, "n": 1}'),
        (("run", '{"passwords": ["abc", "def"]}'), 'run {"passwords": ***'),
        (("run", '{"max_tokens": 512}'), 'run {"max_tokens": 512}'),
        (("pytest", "tests/test_token.py::test_x", "test_token.py::test_x"), None),
        (("docker", "-v", "/run/secrets:/run/secrets:ro"), None),
        (
            ("run", "--pwd", "abc", "--passwd=abc", "--passcode", "abc"),
            "run --pwd *** --passwd=*** --passcode ***",
        ),
        (("run", "--creds=u:abc", "--jwt", "abc", "--bearer=abc"), "run --creds=*** --jwt *** --bearer=***"),
        (("run", "--auth", "u:abc", "--otp", "482913"), "run --auth *** --otp ***"),
        (("sh", "-c", "cd / && MYSQL_PWD=abc mysql -h db"), "sh -c cd / && MYSQL_PWD=*** mysql -h db"),
        (
            ("env", "SSHPASS=abc", "DB_PASS=abc", "PGPASSWORD=abc"),
            "env SSHPASS=*** DB_PASS=*** PGPASSWORD=***",
        ),
        (("run", "Server=a;Uid=b;Pwd=abc;AccountKey=abc"), "run Server=a;Uid=b;Pwd=***;AccountKey=***"),
        (("run", "--password", "-s3cr3t", "--token", "--s3cr3t", "x"), "run --password *** --token *** x"),
        (("sh", "-c", "run --token -s3cr3t -v"), "sh -c run --token *** -v"),
        (("run", "--token", "482913", "--token=482913"), "run --token *** --token=***"),
        (("run", "--eos-token-id", "2", "--max-token=512"), None),
        (("curl", "https://h/x?key=abc&n=1"), "curl https://h/x?key=***&n=1"),
        (("curl", "https://h/x?X-Amz-Signature=abc"), "curl https://h/x?X-Amz-Signature=***"),
        (("sh", "-c", "PWD=/srv OLDPWD=/ run --auth-mode basic --no-auth x --jwt-issuer y"), None),
        (
            ("run", "auth:8080", "https://auth:8080/jwt", "npm_config_registry=http://npm/", "pypi-simple"),
            None,
        ),
        (("curl", "-u", "bob:abc", "--proxy-user", "bob:abc", "x"), "curl -u bob:*** --proxy-user bob:*** x"),
        (("curl", "-ubob:abc", "--user=bob:abc"), "curl -ubob:*** --user=bob:***"),
        (
            ("sh", "-c", "curl -u 'bob:abc' x; curl --user bob:abc x"),
            "sh -c curl -u 'bob:***' x; curl --user bob:*** x",
        ),
        (("docker", "-u", "1000:1000", "--user=1000:1000", "-u", "root"), None),
        (
            (
                "rsync",
                "-u",
                "host:/data",
                "python",
                "-u",
                "http://host:80/",
                "sh",
                "-c",
                "run -u h:/x 'a: b'",
            ),
            None,
        ),
        (("sshpass", "-p", "abc", "ssh", "x"), "sshpass -p *** ssh x"),
        (("/usr/bin/mysql", "-u", "root", "-pabc", "db"), "/usr/bin/mysql -u root -p*** db"),
        (("redis-cli", "-h", "h", "-a", "abc", "get", "a"), "redis-cli -h h -a *** get a"),
        (
            ("sh", "-c", "mysql -h h -pabc db && sshpass -p abc ssh x"),
            "sh -c mysql -h h -p*** db && sshpass -p *** ssh x",
        ),
        (("mkdir", "-p", "mysql-data", "run", "-print"), None),
        (("find", "/var/lib/mysql", "-print"), None),
        (("gcc", "-I/usr/include/mysql", "-pthread", "-I/opt/bin/mysql", "-pipe"), None),
        (("sh", "-c", "find /var/lib/mysql -print; cc -I/usr/include/mysql -pthread"), None),
        (("sh", "-c", "/usr/bin/mysql -pabc; ./mysql -pabc"), "sh -c /usr/bin/mysql -p***; ./mysql -p***"),
        (("/opt/db/mysql", "-pabc"), "/opt/db/mysql -p***"),
        (("env", "./mysql", "-pabc"), "env ./mysql -p***"),
        (
            ("run", "--encryption-key", "abc", "--psk=abc", "--pw", "abc"),
            "run --encryption-key *** --psk=*** --pw ***",
        ),
        (("run", "--mnemonic", "abc", "--seed-phrase=a b"), "run --mnemonic *** --seed-phrase=***"),
        (("run", "Bearer abcdefghijklmnop", "bearer of news"), "run Bearer *** bearer of news"),
        (("curl", "https://hooks.slack.com/services/T0/B0/abc"), "curl https://hooks.slack.com/services/***"),
        (
            ("curl", "https://discord.com/api/webhooks/1/abc?wait=1"),
            "curl https://discord.com/api/webhooks/***?wait=1",
        ),
        (("curl", "https://api.telegram.org/bot1:abc/send"), "curl https://api.telegram.org/bot***"),
        (("run", "-----BEGIN RSA PRIVATE KEY-----\nabc"), "run -----BEGIN RSA PRIVATE KEY-----***"),
        (("curl", "https://h/x?X-Goog-Signature=abc"), "curl https://h/x?X-Goog-Signature=***"),
        (("a\nb\x1b[31m",), "a�b�[31m"),
        ((), ""),
    ],
)
def test_what_is_shown(arguments: tuple[str, ...], shown: str | None) -> None:
    """A table: arguments, and how they are shown; None where nothing of them is secret."""
    assert readable_command(arguments) == (" ".join(arguments) if shown is None else shown, False)


@pytest.mark.parametrize(
    "secret",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk",
        "sk_live_" + "a1" * 12,
        "AIza" + "a1" * 18,
        "ASIA" + "A1" * 8,
        "AKIA" + "A1" * 8,
        "npm_" + "a1" * 18,
        "pypi-" + "a1" * 18,
        "xoxs-" + "a1" * 10,
        "ya29." + "a1" * 20,
        "dckr_pat_" + "a1" * 12,
        "nvapi-" + "a1" * 20,
        "glpat-" + "a1" * 10,
        "SG." + "a1" * 11 + "." + "a1" * 20,
        "xkeysib-" + "a1" * 20,
        "AGE-SECRET-KEY-1" + "A1" * 20,
    ],
)
def test_a_token_that_says_who_issued_it_is_not_shown(secret: str) -> None:
    assert readable_command(("login", secret, f"--as={secret}")) == ("login *** --as=***", False)


def test_fc032_a_last_argument_that_does_not_fit_is_dropped() -> None:
    assert readable_command(("python", "x" * 300)) == ("python…", True)


def test_fc032_a_first_argument_that_does_not_fit_is_cut_between_characters() -> None:
    text, cut = readable_command(("ä" * 200,), bytes_max=5)
    assert (text, cut) == ("ää…", True)


def test_fc032_padding_is_no_argument() -> None:
    assert split_cmdline("title\0\0\0\0") == ("title",)
    assert split_cmdline("\0\0") == ()
    assert split_cmdline("a\0\0b\0") == ("a", "", "b")


def test_no_argument_however_odd_holds_up_the_loop() -> None:
    odd = [
        "a" * 200_000,
        "-" * 200_000,
        "--token" * 30_000,
        "token=" * 30_000,
        "token:" * 30_000,
        "token " * 30_000,
        "token" + " " * 200_000,
        '"token: \\' * 30_000,
        "://" + "a:" * 100_000,
        "?key=" * 30_000,
        "eyJ-" * 30_000,
        "--token --a" + "-a" * 30_000,
        "auth" * 30_000,
        "mysql " * 30_000,
        "mysql " + "-" * 30_000,
        "-u " * 30_000,
        "-u" + "a:" * 30_000,
        "bearer " * 30_000,
        "-----BEGIN " * 30_000,
    ]
    took = []
    for argument in odd:
        began = time.process_time()
        readable_command((argument,))
        took.append(time.process_time() - began)
    assert max(took) < 0.1
