-- Calls of the API by many buyers, spread over several web processes; prints the figures as one line of JSON.
-- Arguments after `--`: what is called ("fresh", "replay" or "read"), run number (fresh keys begin with it), and
-- the buyers, each as token,sku,key,order: the key that is replayed, and the order that it made.
-- CAPACITY_PORTS: the processes' ports; thread after thread takes the next one, as a proxy in front would.
-- Requests are put together as text: wrk.format would take the CPU that the servers are to have.
local threads = 0

function setup(thread)
  local ports = {}
  for port in os.getenv("CAPACITY_PORTS"):gmatch("%d+") do
    ports[#ports + 1] = port
  end
  thread.addr = wrk.lookup("127.0.0.1", ports[threads % #ports + 1])[1]
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  run = tonumber(args[2])
  turn = number * 7
  requests = {}
  for place = 3, #args do
    local token, sku, key, order = args[place]:match("([^,]+),([^,]+),([^,]+),([^,]+)")
    local head = " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Token " .. token .. "\r\n"
    local body = '{"items": [{"sku": "' .. sku .. '", "quantity": 1}]}'
    local post = "POST /api/v1/orders" .. head .. "Content-Type: application/json\r\nContent-Length: " .. #body
      .. "\r\nIdempotency-Key: "
    if args[1] == "fresh" then
      requests[#requests + 1] = {post, "\r\n\r\n" .. body}
    elseif args[1] == "replay" then
      requests[#requests + 1] = post .. key .. "\r\n\r\n" .. body
    else
      requests[#requests + 1] = "GET /api/v1/orders/" .. order .. head .. "\r\n"
    end
  end
end

function request()
  turn = turn + 1
  local found = requests[turn % #requests + 1]
  if type(found) == "string" then
    return found
  end
  return found[1] .. string.format("%08x-%04x-4000-8000-%012x", run, number, turn) .. found[2]
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50_ms": %f, "p95_ms": %f, "p99_ms": %f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    latency:percentile(99) / 1e3, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
