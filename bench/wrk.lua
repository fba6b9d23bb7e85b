-- Posts with a key of its own, or one fixed key; prints the figures as one line of JSON.
-- Arguments after `--`: the whole request, the key that stands in it for each call's own, the number of the run (all
-- keys begin with it), and "replay" for one key. As text: wrk.format would take CPU that the servers are to have.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  parts, from = {}, 1
  while true do
    local first, last = args[1]:find(args[2], from, true)
    parts[#parts + 1] = args[1]:sub(from, first and first - 1)
    if not first then break end
    from = last + 1
  end
  run = tonumber(args[3])
  replay = args[4] == "replay"
  count = 0
end

function request()
  if not replay then
    count = count + 1
  end
  -- in the form of a random UUID, which some peers ask for
  return table.concat(parts, string.format("%08x-%04x-4000-8000-%012x", run, replay and 0 or number, count))
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
