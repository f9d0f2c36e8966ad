// Several buyers at one click, and answers without a new page. Without this script the forms work one by one.
const notice = document.querySelector(".notice");
const json = { Accept: "application/json" };

document.querySelector(".crowd").hidden = false;
document.querySelector(".products").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const item = form.closest("li");
  const buyers = Number(document.querySelector("[name=buyers]:checked").value);
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const before = (await stocks())[item.dataset.id];
    const answers = await Promise.all(Array.from({ length: buyers }, () => buy(form)));
    const after = (await stocks())[item.dataset.id];
    item.querySelector(".stock").textContent = after.stock;
    item.querySelector(".sold").textContent = after.sold;
    buyers === 1 ? tellOne(answers[0]) : tellCrowd(after.name, answers, before.stock, after.stock);
  } catch (error) {
    tell("The shop doesn't answer.", "bad");
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
});

async function stocks() {
  const { products } = await (await fetch("/", { headers: json })).json();
  return Object.fromEntries(products.map((product) => [product.id, product]));
}

async function buy(form) {
  const response = await fetch(form.action, { method: "POST", body: new FormData(form), headers: json });
  const detail = response.headers.get("Content-Type").includes("json") ? (await response.json()).detail : response.statusText;
  return { status: response.status, detail, retryAfter: response.headers.get("Retry-After") };
}

function tellOne({ status, detail, retryAfter }) {
  const kinds = { 200: "sold", 409: "busy", 410: "gone" };
  tell(status === 409 ? `${detail} (409, Retry-After: ${retryAfter} s)` : detail, kinds[status] || "bad");
}

function tellCrowd(name, answers, before, after) {
  const count = (status) => answers.filter((answer) => answer.status === status).length;
  const [sold, busy, gone] = [count(200), count(409), count(410)];
  const failed = answers.length - sold - busy - gone;
  const parts = [`${sold} bought`];
  if (busy) parts.push(`${busy} told to come back (409)`);
  if (gone) parts.push(`${gone} came too late (410)`);
  if (failed) parts.push(`${failed} failed`);
  const lost = sold - (before - after);
  const stock = lost
    ? `But the stock went from ${before} to ${after}: ${lost} of the sales overwrote another one.`
    : `The stock went from ${before} to ${after}.`;
  tell(`${name}: ${parts.join(", ")}. ${stock}`, lost || failed ? "bad" : "sold");
}

function tell(text, kind) {
  notice.textContent = text;
  notice.className = `notice ${kind}`;
}
