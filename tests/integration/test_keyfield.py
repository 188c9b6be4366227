"""Keys inside the entity, under a lock on its row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, connections
from pytest_django import Settings

from django_outbox.exceptions import AlreadyOpen, RepeatUnnoticed
from tests.testapp.models import Account, ForgetfulAccount, SavingsAccount


def deposit(account: Account | ForgetfulAccount) -> dict[str, int]:
    account.balance += 10
    return {"balance": account.balance}


@pytest.mark.django_db
def test_a_change_is_applied_once_and_answers_the_same() -> None:
    account = Account.objects.create()
    assert account.apply_once("k", deposit) == {"balance": 10}
    assert account.apply_once("k", deposit) == {"balance": 10}
    assert account.apply_once("l", deposit) == {"balance": 20}
    again = Account.objects.get()
    assert again.balance == 20
    ((key, date, response), _second) = again.idempotency_keys
    assert (key, response) == ("k", {"balance": 10})
    age = datetime.now(UTC) - datetime.fromisoformat(date)
    assert abs(age) < timedelta(minutes=5)


@pytest.mark.django_db
def test_as_a_block() -> None:
    account = Account.objects.create()
    for _ in range(2):
        with account.apply_once("k") as run:
            if run.is_first:
                account.balance += 10
    assert Account.objects.get().balance == 10
    assert Account.objects.get().idempotency_keys[0][:1] == ["k"]
    assert len(Account.objects.get().idempotency_keys[0]) == 2


@pytest.mark.django_db
def test_a_change_within_a_change_of_the_same_row_is_refused() -> None:
    """Each saves what it has read: the inner one or the outer one would be lost."""
    account, other = Account.objects.create(), Account.objects.create()
    with account.apply_once("outer") as run:
        assert run.is_first
        account.balance += 100
        for same in (account, Account.objects.get(pk=account.pk)):
            with pytest.raises(AlreadyOpen, match="A change of this account is"):
                same.apply_once("inner", deposit)
        other.apply_once("inner", deposit)
    assert [a.balance for a in Account.objects.order_by("pk")] == [100, 10]
    account.apply_once("inner", deposit)
    assert account.balance == 110


@pytest.mark.django_db(transaction=True)
def test_a_change_may_end_in_another_context() -> None:
    account = Account.objects.create()

    async def change() -> None:
        one = account.apply_once("k")
        run = await sync_to_async(one.__enter__)()
        assert run.is_first
        account.balance = 5
        await sync_to_async(one.__exit__)(None, None, None)

    async_to_sync(change)()
    assert not connection.in_atomic_block
    assert Account.objects.get().balance == 5
    account.apply_once("l", deposit)


@pytest.mark.django_db
def test_a_change_of_a_parent_is_one_of_its_child() -> None:
    child = SavingsAccount.objects.create()
    with child.apply_once("outer") as run:
        assert run.is_first
        with pytest.raises(AlreadyOpen):
            Account.objects.get(pk=child.pk).apply_once("inner", deposit)


@pytest.mark.django_db(transaction=True)
def test_what_fails_is_not_remembered() -> None:
    account = Account.objects.create()

    def fail(account: Account) -> None:
        account.balance = 99
        account.save()
        raise LookupError

    with pytest.raises(LookupError):
        account.apply_once("k", fail)
    with pytest.raises(RepeatUnnoticed), account.apply_once("k"):
        account.balance = 99
    assert Account.objects.get().balance == 0
    assert account.apply_once("k", deposit) == {"balance": 10}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [Account, SavingsAccount])
def test_changes_at_the_same_time_come_one_after_the_other(
    model: type[Account],
) -> None:
    """Each starts from the row as it is, whatever the object in memory says."""
    account = model.objects.create()
    start = Barrier(4)

    def change(key: str) -> None:
        mine = model.objects.get(pk=account.pk)
        try:
            start.wait(10)
            mine.apply_once(key, deposit)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(change, key) for key in ("a", "a", "b", "b")]:
            job.result(10)
    assert Account.objects.get().balance == 20


@pytest.mark.django_db
def test_old_keys_go_when_one_is_added() -> None:
    account = ForgetfulAccount.objects.create()
    for key in ("a", "b", "c"):
        account.apply_once(key, deposit)
    assert [e[0] for e in account.idempotency_keys] == ["b", "c"]


@pytest.mark.django_db(transaction=True)
def test_keys_outlive_a_change_of_use_tz(settings: Settings) -> None:
    account = ForgetfulAccount.objects.create()
    try:
        for uses_time_zones in (False, True):
            settings.USE_TZ = uses_time_zones
            # A connection keeps the setting with which it was opened.
            connection.close()
            account.apply_once(f"USE_TZ={uses_time_zones}", deposit)
    finally:
        connection.close()
    assert [e[0] for e in account.idempotency_keys] == ["USE_TZ=False", "USE_TZ=True"]
    assert all(e[1].endswith("+00:00") for e in account.idempotency_keys)


@pytest.mark.django_db
def test_a_row_that_is_gone_is_not_changed() -> None:
    account = Account.objects.create()
    Account.objects.all().delete()
    with pytest.raises(ObjectDoesNotExist):
        account.apply_once("k", deposit)
