-- Returns the next fence: the larger of the server's clock in microseconds and the successor of the last fence. It
-- increases even if the counter is gone, or older than the last fence (a restart from a snapshot, a lagging replica).
-- Reserves the ``spare`` fences after it for local hand-overs.
-- Both results are text: the fence, and '' if it equals the clock, else '@' and the clock in ms. If something else has
-- written a counter that is too large for exact integers: nil and an error.
-- Lua prints numbers with 14 digits, but microseconds have 16. Joining text is cheaper than formatting a number.
local function next_fence(counter, last, time, spare)
  local micros = time[2]
  if #micros < 6 then micros = string.format('%06d', micros) end
  local clock = time[1] .. micros
  local stored = redis.call('SET', counter, clock, 'GET')
  local fence, since = clock, ''
  if last or stored and (#stored ~= #clock or stored >= clock) then
    local largest = math.max(last and tonumber(last) + spare or 0, tonumber(stored or 0) or 0)
    if largest + spare >= 9007199254740992 then -- 2^53: larger integers are not exact in Lua
      if stored then redis.call('SET', counter, stored) else redis.call('DEL', counter) end
      return nil, redis.error_reply('FENCE fences have reached 2^53')
    end
    if largest >= tonumber(clock) then
      fence, since = string.format('%.0f', largest + 1), '@' .. string.sub(clock, 1, -4)
    end
  end
  if spare > 0 or since ~= '' then redis.call('SET', counter, string.format('%.0f', fence + spare)) end
  return fence, since
end
