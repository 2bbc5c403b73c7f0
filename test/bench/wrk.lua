-- Sends the requests of a file in turn, each a whole one (head and body) behind a line with its bytes. Prints the
-- figures of the run as one line of JSON.
local requests = {}
local sent = 0

function init(args)
  local file = assert(io.open(args[1], 'rb'))
  while true do
    local line = file:read('*l')
    if line == nil then break end
    requests[#requests + 1] = file:read(tonumber(line))
  end
  file:close()
end

function request()
  sent = sent % #requests + 1
  return requests[sent]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%.6f,"p50Ms":%.3f,"p99Ms":%.3f,"refused":%d,"broken":%d,"cpuSeconds":%.3f}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout, os.clock()))
end
