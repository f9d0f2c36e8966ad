-- Claims the load of a value, unless the value is fresh or another caller has the claim. A repeated request finds its own
-- claim. The same step registers a request with an address as a waiter.
--
-- uses read_value register_waiter now_ms read_load
-- KEYS  lease, waiters, generation, replica lag, permit, and if values are in this store: value
-- ARGV  token, lease in ms, ms that a fresh value has left at least (-1: none is fresh), what to override (0: nothing;
--       1: any claim; 2: the note of a failure), ms after which one more caller may load ('': never), address ('': none),
--       arrival (0: now), 1 if more callers wait in this queue, ms to keep the registration
-- returns  {verdict, ms left of the lease, arrival, ms left of the value, value, reason of a failure}
--          verdict 0: busy, 1: claimed, 2: the value is fresh, 3: a load failed, 4: load, but don't store the value
--          {-1, what}  the key of the lease holds another value
local generation = redis.call('GET', KEYS[3]) or '0'
local token, details, left = read_load(KEYS[1], generation)
if not token and details then return details end
local value, value_left = false, -2
if KEYS[6] then
  value = redis.call('GET', KEYS[6])
  if value then value_left = redis.call('PTTL', KEYS[6]) end
end

local override, verdict = ARGV[4] == '1', 0
local fresh = value and ARGV[3] ~= '-1' and (value_left == -1 or value_left > tonumber(ARGV[3]) or redis.call('PTTL', KEYS[4]) > 0)
if fresh and not override and token ~= ARGV[1] then
  verdict = 2
elseif not token or override or token == ARGV[1] or (ARGV[4] == '2' and token == '!') then
  if override then redis.call('DEL', KEYS[5]) end
  redis.call('SET', KEYS[1], '1 load ' .. ARGV[1] .. ' ' .. generation, 'PX', ARGV[2])
  verdict, left = 1, tonumber(ARGV[2])
elseif token == '!' then
  verdict = 3
elseif ARGV[5] ~= '' then
  local now = now_ms(redis.call('TIME'))
  local last_bypass = tonumber(details)
  if not last_bypass or now - last_bypass >= tonumber(ARGV[5]) then
    redis.call('SET', KEYS[1], '1 load ' .. token .. ' ' .. generation .. ' ' .. string.format('%.0f', now), 'KEEPTTL')
    verdict = 4
  end
end

local arrival = 0
if ARGV[6] ~= '' then
  if verdict == 0 or ARGV[8] == '1' then
    arrival = register_waiter(KEYS[2], ARGV[6], verdict == 0 and ARGV[7] or '0', ARGV[9])
  else
    redis.call('ZREM', KEYS[2], ARGV[6])
  end
end
return {verdict, left or 0, arrival, value_left, value, verdict == 3 and details or ''}
