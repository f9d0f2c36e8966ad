"""The admin's pages of locks in a real browser, under a policy as strict as Django's own admin can bear."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from django_redis_locks import LockError, inspection, locks
from tests.django.admin_site import LIST, lock_url, urlpatterns
from tests.django.helpers import in_thread, wait_until
from tools.browser import Browser, Page

__all__ = ["urlpatterns"]

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HOSTILE = "order:<script>console.error('run')</script><img src=x onerror=console.error('run')>"

CONTRAST = """
(() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(x => x / 255)
            .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return [...document.querySelectorAll(%s)].map(one => {
        let behind = one;
        while (/^rgba\\(.*, 0\\)$/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
        const pair = [getComputedStyle(one).color, getComputedStyle(behind).backgroundColor].map(light);
        return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    });
})()
"""


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A middleware: nothing inline, nothing from elsewhere."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = HttpResponse(status=204) if request.path == "/favicon.ico" else get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return answer


@pytest.fixture
def site(settings: Any, transactional_db: None) -> Iterator[str]:
    """A server of its own: one of the session would have the middleware that was there when it began."""
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [f"{__name__}.strict", *settings.MIDDLEWARE]
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    server = LiveServer("127.0.0.1")
    yield server.url
    wait_until(
        lambda: not any("process_request" in thread.name for thread in threading.enumerate())
    )  # a thread that answers mustn't outlive its database
    server.stop()


@pytest.fixture
def held() -> Iterator[None]:
    """Three locks of another thread, one of them with a key that is a script."""
    grants = [in_thread(locks.lock(key, expire=600).acquire) for key in ("order:42", "order:43", HOSTILE)]
    yield
    for grant in grants:
        try:
            grant.release()
        except LockError:
            pass


@pytest.fixture
def admin(browser: Browser, site: str) -> Iterator[Callable[..., Page]]:
    """`admin(dark=True)`: a tab of a superuser."""
    pages = []

    def open_page(**look: Any) -> Page:
        client = Client()
        client.force_login(User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)[0])
        page = browser.open(**look)
        pages.append(page)
        page.cookie(site, "sessionid", client.cookies["sessionid"].value)
        return page

    yield open_page
    for page in pages:
        page.close()


def tab_to(page: Page, wanted: str) -> None:
    """Without a mouse."""
    for _ in range(80):
        if page.evaluate(f"document.activeElement.matches({json.dumps(wanted)})"):
            return
        page.press("Tab")
    pytest.fail(f"the keyboard never reaches {wanted}")


@pytest.mark.parametrize(("dark", "mobile"), [(False, False), (True, True)], ids=["light desktop", "dark phone"])
def test_pages_break_no_policy_contrast_or_width(admin: Any, site: str, held: None, dark: bool, mobile: bool) -> None:
    """[D57] No error in the console, nothing that the policy forbids, nothing out of a key runs, words can be read, and on a
    phone the page isn't wider than the screen."""
    page = admin(dark=dark, mobile=mobile, width=390 if mobile else 1280)
    force = f"{site}{LIST}force-release/?lock=default:order%253A42&lock=default:order:42"
    for url in (site + LIST, f"{site}{LIST}?q=nobody", site + lock_url(HOSTILE), site + lock_url("free"), force):
        page.goto(url)
        assert page.problems == [], url
        ratios = page.evaluate(CONTRAST % "'[class^=redis-lock]:not(.redis-lock-host):not(.redis-lock-key)'")
        assert all(ratio >= 4.5 for ratio in ratios), (url, ratios)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= (390 if mobile else 1280), url
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_list_and_long_keys_fit_a_screen_of_1280_pixels(admin: Any, site: str) -> None:
    """[D7] All columns of the list beside navigation and filters; a long key wraps wherever it stands."""
    long = "tenant:" + "x" * 190
    lapsed = in_thread(locks.lock("export:tenant:1", expire=0.2, wait=30).acquire)
    wait_until(lambda: lapsed.lost)
    grant = in_thread(locks.lock(long, expire=600).acquire)
    page = admin(width=1280)
    for url in (f"{site}{LIST}?state=all", site + lock_url(long), f"{site}{LIST}force-release/?lock=default:{long}"):
        page.goto(url)
        wide = (
            "[document.documentElement, ...document.querySelectorAll('.results, .readonly, .breadcrumbs, .form-row')]"
        )
        assert page.evaluate(f"{wide}.every(one => one.scrollWidth <= one.clientWidth)"), url
        assert page.evaluate("document.body.innerText.includes('xxxxx')"), url
    grant.release()


def test_pages_have_colours_without_those_of_the_theme(admin: Any, site: str, held: None) -> None:
    """[D3] A theme may lack the admin's variables, as django-unfold does."""
    page = admin()
    page.goto(f"{site}{LIST}force-release/?lock=default:order:42")
    look = "JSON.stringify([...document.querySelectorAll(%s)].map(one => getComputedStyle(one).backgroundColor))"
    clear = "[...document.styleSheets].filter(one => !one.href.includes('django_redis_locks')).map(one => one.disabled = true)"
    page.evaluate(f"{clear}, 1")
    colours = json.loads(page.evaluate(look % "'.redis-lock-submit, .redis-lock-warning'"))
    assert colours == ["rgba(230, 150, 0, 0.2)", "rgb(186, 33, 33)"]
    assert page.evaluate("getComputedStyle(document.querySelector('[name=reason]')).borderTopStyle") == "solid"
    page.goto(site + LIST)
    page.evaluate(f"{clear}, 1")
    assert set(json.loads(page.evaluate(look % "'.redis-lock-state'"))) == {"rgba(34, 160, 70, 0.18)"}


def test_inline_style_is_reported_by_the_policy(admin: Any, site: str, held: None) -> None:
    """The test above can fail."""
    page = admin()
    page.goto(site + LIST)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>'), 1")
    wait_until(lambda: page.evaluate("1") and page.problems)
    assert "Content Security Policy" in page.problems[0]


def test_lock_is_released_with_the_keyboard_alone(admin: Any, site: str, held: None) -> None:
    """From the list to its page, to the confirmation, through the reason, and back to the list."""
    page = admin()
    page.goto(f"{site}{LIST}?q=order:42")
    tab_to(page, ".field-shown_key a")
    page.press("Enter", loads=True)
    assert page.evaluate("location.pathname") == lock_url("order:42")
    tab_to(page, ".redis-lock-force")
    page.press("Enter", loads=True)
    tab_to(page, "[name=reason]")
    page.type("it hangs")
    tab_to(page, ".redis-lock-submit")
    page.press("Enter", loads=True)
    assert page.evaluate("document.querySelector('.messagelist').innerText") == "Released: order:42."
    assert inspection.find("order:42").state == "free"
    assert inspection.find("order:43").state == "held"
    assert page.problems == []


def test_selecting_a_full_page_offers_no_selection_of_all_pages(admin: Any, site: str, held: None) -> None:
    """[D59] What would be refused isn't offered."""
    more = [in_thread(locks.lock(f"more:{number}", expire=600).acquire) for number in range(60)]
    page = admin()
    page.goto(site + LIST)
    tab_to(page, "#action-toggle")
    page.press(" ")
    assert page.evaluate("document.querySelector('.action-counter').innerText") == "50 of 50 selected"
    assert page.evaluate("getComputedStyle(document.querySelector('.actions .question')).display") == "none"
    for grant in more:
        grant.release()
