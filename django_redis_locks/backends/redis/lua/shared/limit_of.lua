-- The limit for a request: the one that is set; else the smaller one of the request's and that of the holds.
local function limit_of(state, limit)
  return state.set or state.used > 0 and math.min(state.limit, limit) or tonumber(limit)
end
