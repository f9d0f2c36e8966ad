-- Adds a hold to the state, and the end of its lease. ``mark``: '*' until a request claims it, as for a lock.
local function add_hold(ends, state, kind, limit, permits, token, fence, mark, since, holder, at)
  if holder ~= '' then holder = ' ' .. holder end
  local fields = state.fields
  fields[#fields + 1] = token
  fields[#fields + 1] = permits .. ' ' .. fence .. mark .. since .. holder
  local text = string.format('%.0f', at) -- once, because Lua is slow at it
  redis.call('ZADD', ends, text, token)
  state.kind, state.limit = kind, limit_of(state, limit)
  if state.used == 0 or at < tonumber(state.first) then state.first = text end
  if state.used == 0 or at > tonumber(state.last) then state.last = text end
  state.used, state.extended = state.used + permits, true
end
