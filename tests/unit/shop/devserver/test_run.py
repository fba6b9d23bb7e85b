"""What `make run` reads from the environment before it starts anything."""

import socket
from pathlib import Path

import pytest

from payments.sandbox import keys
from shop.devserver.plan import Plan, RunError, complete
from shop.devserver.run import Run, _must_be_free
from tests.ports import free_ports


def test_defaults_and_three_web_processes() -> None:
    plan = Plan.of({})
    assert (plan.ports, plan.sandbox_port, plan.url) == ((8000,), 8001, "http://127.0.0.1:8000")
    assert Plan.of({"WEB": "3", "PORT": "9000", "SANDBOX_PORT": "9001"}).ports == (9000, 9010, 9020)
    assert Plan.of({"DATA_DIR": ""}).data_dir == plan.data_dir == Path.cwd() / ".data"


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"PORT": "eighty"}, "PORT must be"),
        ({"PORT": "70000"}, "PORT must be"),
        ({"WEB": "0"}, "WEB must be"),
        ({"SANDBOX_PORT": "8010", "WEB": "2"}, "SANDBOX_PORT 8010 is also a web port"),
        ({"PORT": "65530", "WEB": "2"}, "PORT 65530 leaves no room for WEB 2"),
    ],
)
def test_a_mistake_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(RunError, match=named):
        Plan.of(environment)


def test_without_debug_the_secret_is_for_the_operator_to_set(tmp_path: Path) -> None:
    plan = Plan.of({"DATA_DIR": str(tmp_path)})
    with pytest.raises(RunError, match="SECRET_KEY is not set"):
        complete(plan, {"DEBUG": "off"})
    assert not (tmp_path / "secret_key").exists()
    assert complete(plan, {"DEBUG": "off", "SECRET_KEY": "mine" * 20})["SECRET_KEY"] == "mine" * 20


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"Port {port} is in use.*PORT"):
            _must_be_free("PORT", port)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Of a folder whose keys are made once."""
    return Plan.of({"DATA_DIR": str(tmp_path_factory.mktemp("data"))})


def test_unset_channels_point_at_the_sandbox_and_the_secret_is_kept(plan: Plan) -> None:
    first, second = complete(plan, {}), complete(plan, {})
    assert first == second
    assert first["WECHAT_API_URL"] == "http://127.0.0.1:8001/wechat"
    assert first["ALIPAY_GATEWAY_URL"] == "http://127.0.0.1:8001/alipay/gateway.do"
    assert first["STRIPE_API_URL"] == "http://127.0.0.1:8001/stripe"
    assert first["STRIPE_SECRET_KEY"].startswith("sk_test_")
    assert len(first["SECRET_KEY"]) >= 50
    assert len(first["WECHAT_API_V3_KEY"]) == 32
    assert (plan.data_dir / "sandbox" / "settings.json").stat().st_mode & 0o077 == 0


def test_what_is_set_of_a_channel_stays_and_the_rest_is_the_sandboxs(plan: Plan) -> None:
    unset = complete(plan, {})
    for name in (
        "WECHAT_MCH_ID",
        "ALIPAY_PUBLIC_KEY_FILE",
        "STRIPE_WEBHOOK_SECRET",
        "STRIPE_METHOD",
        "SECRET_KEY",
    ):
        assert complete(plan, {name: "mine"}) == unset | {name: "mine"}
    full = complete(plan, {"STRIPE_SECRET_KEY_FILE": "mine"})  # the secret is set, in a file
    assert full == {name: unset[name] for name in unset if name != "STRIPE_SECRET_KEY"} | {
        "STRIPE_SECRET_KEY_FILE": "mine"
    }


def test_a_channel_elsewhere_or_of_production_is_left_alone(plan: Plan) -> None:
    full = complete(plan, {"STRIPE_API_URL": "mine"})
    assert {name: full[name] for name in full if name.startswith("STRIPE_")} == {"STRIPE_API_URL": "mine"}
    production = {"DEBUG": "0", "SECRET_KEY": "mine" * 20, "WECHAT_MCH_ID": "1900000001"}
    full = complete(plan, production)
    assert "WECHAT_API_URL" not in full
    assert full["ALIPAY_GATEWAY_URL"].startswith("http://127.0.0.1:8001")


def test_the_sandbox_knows_what_is_set_but_for_keys_that_it_holds_itself(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = complete(plan, {})
    for name in ("STRIPE_WEBHOOK_SECRET", "WECHAT_PLATFORM_KEYS_DIR"):
        monkeypatch.setenv(name, "mine")
    secrets = plan.data_dir / "newest first"
    secrets.write_text("mine too\nolder\n")
    monkeypatch.setenv("WECHAT_API_V3_KEY_FILE", str(secrets))
    found = keys.Keys(plan.data_dir / "sandbox").settings
    mine = {"STRIPE_WEBHOOK_SECRET": "mine", "WECHAT_API_V3_KEY": "mine too"}
    assert found == {name: made[name] for name in found} | mine


def test_the_sandbox_may_stand_behind_a_proxy_of_this_machine(plan: Plan) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        proxy = f"http://{host}:9000/wechat"
        assert complete(plan, {"WECHAT_API_URL": proxy}) == complete(plan, {}) | {"WECHAT_API_URL": proxy}
    away = complete(plan, {"WECHAT_API_URL": "https://api.mch.weixin.qq.com"})
    assert "WECHAT_MCH_ID" not in away


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    port, sandbox_port = map(str, free_ports(2))
    run = Run(Plan.of({"DATA_DIR": f"{tmp_path}/file/data", "PORT": port, "SANDBOX_PORT": sandbox_port}))
    try:
        with pytest.raises(RunError, match=r"DATA_DIR .*/file/data cannot be used: Not a directory"):
            run.start()
    finally:
        run.stop()
