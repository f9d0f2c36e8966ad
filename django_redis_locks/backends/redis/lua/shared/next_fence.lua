-- Returns the next fence: the larger of the server's clock in microseconds and the successor of the last fence. It
-- increases even if the counter is gone, or older than the last fence (a restart from a snapshot, a lagging replica).
-- The ``spare`` fences after it are reserved for local hand-overs.
-- Both results are text: the fence, and '' if it is the clock, else '@' and the clock in ms. If the counter is too large to
-- be told from its successor, since something else has written to it: nil and an error.
-- Lua prints numbers with 14 digits, microseconds have 16: joining text is cheaper than arithmetic.
local function next_fence(counter, last, time, spare)
  local micros = time[2]
  if #micros < 6 then micros = string.format('%06d', micros) end
  local clock = time[1] .. micros
  local given = redis.call('SET', counter, clock, 'GET')
  local fence, since = clock, ''
  if last or given and (#given ~= #clock or given >= clock) then
    local largest = math.max(last and tonumber(last) + spare or 0, tonumber(given or 0) or 0)
    if largest + spare >= 9007199254740992 then -- 2^53: from there on Lua can't tell a fence from the next
      if given then redis.call('SET', counter, given) else redis.call('DEL', counter) end
      return nil, redis.error_reply('FENCE fences have reached 2^53')
    end
    if largest >= tonumber(clock) then
      fence, since = string.format('%.0f', largest + 1), '@' .. string.sub(clock, 1, -4)
    end
  end
  if spare > 0 or since ~= '' then redis.call('SET', counter, string.format('%.0f', fence + spare)) end
  return fence, since
end
