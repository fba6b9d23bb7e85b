-- Posts with a key of its own, or one fixed key; prints the figures as one line of JSON.
-- Arguments after `--`: host:port, path, run number (all keys begin with it), and "replay" for the fixed key.
-- Requests are put together as text: wrk.format would take the CPU that the servers are to have.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  head = "POST " .. args[2] .. " HTTP/1.1\r\nHost: " .. args[1]
    .. "\r\nX-User: 1\r\nContent-Type: application/json\r\nContent-Length: 69\r\nIdempotency-Key: "
  run = tonumber(args[3])
  replay = args[4] == "replay"
  count = 0
end

function request()
  if not replay then
    count = count + 1
  end
  -- in the form of a random UUID, which some peers ask for
  local key = string.format("%08x-%04x-4000-8000-%012x", run, replay and 0 or number, count)
  return head .. key .. '\r\n\r\n{"reference": "' .. key .. '", "amount": 1990}'
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
