-- POSTs a JSON-RPC request again and again, checks each answer, and prints the totals as one line of JSON.
--
--   BODY    the request; @ID@ in it becomes a new message id each time, as a message sent twice is one message
--   WANT    what every answer must contain: plain texts, one a line
--   ACCEPT  the Accept header
--   VERSION the A2A-Version header; unset, none is sent
--   AUTHORIZATION  likewise

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["A2A-Version"] = os.getenv("VERSION")
wrk.headers["Accept"] = os.getenv("ACCEPT")
wrk.headers["Authorization"] = os.getenv("AUTHORIZATION")

local before, after = string.match(os.getenv("BODY"), "^(.*)@ID@(.*)$")
wrk.body = os.getenv("BODY")
local number = 0

local wanted = {}
for text in string.gmatch(os.getenv("WANT"), "[^\n]+") do
  table.insert(wanted, text)
end

local threads = {}

-- Globals, because thread:get sees no locals.
good = 0
bad = 0

function setup(thread)
  table.insert(threads, thread)
end

if before then
  function request()
    number = number + 1
    return wrk.format(nil, nil, nil, before .. string.format("00000000-0000-4000-8000-%012d", number) .. after)
  end
end

local function is_right(status, body)
  if status ~= 200 then
    return false
  end
  for _, text in ipairs(wanted) do
    if not string.find(body, text, 1, true) then
      return false
    end
  end
  return true
end

function response(status, headers, body)
  if is_right(status, body) then
    good = good + 1
    return
  end
  bad = bad + 1
  if bad == 1 then
    io.stderr:write("wrong answer, HTTP ", status, ": ", string.sub(body, 1, 400), "\n")
  end
end

function done(summary, latency, requests)
  local all_good, all_bad = 0, 0
  for _, thread in ipairs(threads) do
    all_good = all_good + thread:get("good")
    all_bad = all_bad + thread:get("bad")
  end
  local errors = summary.errors
  io.write(string.format(
    '\nJSON {"good": %d, "bad": %d, "lost": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f}\n',
    all_good, all_bad, errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
