-- The next fence: the larger of the server's clock in microseconds and the successor of what was given so far. It rises
-- although the counter may be gone, or older than what was given (a restart from a snapshot, a lagging replica).
-- What it returns is text, and so is the second value: '' if the fence is the clock, else '@' and the clock in ms.
-- Lua prints numbers with 14 digits; microseconds have 16. To put them together as text is cheaper than to calculate.
local function next_fence(counter, last, time)
  local micros = time[2]
  if #micros < 6 then micros = string.format('%06d', micros) end
  local clock = time[1] .. micros
  local given = redis.call('SET', counter, clock, 'GET')
  if not last and (not given or #given == #clock and given < clock) then return clock, '' end
  local largest = math.max(tonumber(last) or 0, tonumber(given or 0) or 0)
  if largest < tonumber(clock) then return clock, '' end
  local fence = string.format('%.0f', largest + 1)
  redis.call('SET', counter, fence)
  return fence, '@' .. string.sub(clock, 1, -4)
end
