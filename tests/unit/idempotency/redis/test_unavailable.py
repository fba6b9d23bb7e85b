"""A server's refusals that mean that it is away for the moment."""

import pytest
from redis._parsers.base import BaseParser

from idempotency.redis.availability import is_of_a_replica, is_unavailable


@pytest.mark.parametrize(
    "line",
    [
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "MOVED 3999 127.0.0.1:6381",
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        # as Redis 6 reports what a command inside a script was refused with
        "ERR Error running script (call to f_0724896c9cf45d34eb4aa5313f6a94d3893071b4): @user_script:80: "
        "@user_script: 80: -OOM command not allowed when used memory > 'maxmemory'. ",
        "ERR Error running script (call to f_0724896c9cf45d34eb4aa5313f6a94d3893071b4): @user_script:4: "
        "@user_script: 4: -READONLY You can't write against a read only replica. ",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    ],
)
def test_it_is_away_for_the_moment(line: str) -> None:
    error = BaseParser.parse_error(line)
    assert (is_unavailable(error), is_of_a_replica(error)) == (True, "READONLY" in line)


@pytest.mark.parametrize(
    "line",
    [
        "ERR wrong number of arguments for 'get' command",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOSCRIPT No matching script. Please use EVAL.",
        "ERR unknown command `READONLY `, with args beginning with:",
        "ERR Error running script (call to f_0724896c9cf45d34eb4aa5313f6a94d3893071b4): @user_script:4: "
        "@user_script: 4: -WRONGTYPE Operation against a key holding the wrong kind of value ",
    ],
)
def test_it_is_a_fault_of_ours(line: str) -> None:
    error = BaseParser.parse_error(line)
    assert (is_unavailable(error), is_of_a_replica(error)) == (False, False)
