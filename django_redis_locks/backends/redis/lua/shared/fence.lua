-- The next fence: the larger of the server's clock in microseconds and the counter's successor. It rises although the
-- counter may be gone, or older than what was given (a restart from a snapshot, a lagging replica).
-- Lua prints numbers with 14 digits; microseconds have 16.
local function next_fence(counter, last, time)
  last = math.max(last, tonumber(redis.call('GET', counter) or 0) or 0)
  local fence = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
  redis.call('SET', counter, fence)
  return fence
end
