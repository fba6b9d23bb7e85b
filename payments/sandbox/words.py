"""Chinese of the sandbox's pages: the console, and those on which a shopper pays.

Django's catalogues are the shop's: this process has two languages and a page of sentences.
"""

from typing import Any

from django import template
from django.http import HttpRequest
from django.utils.translation.trans_real import parse_accept_lang_header

from payments.sandbox import state
from payments.sandbox.stripe.cards import TRY_AGAIN

register = template.Library()

_AGAIN = "未扣款。请重试，或返回选择其他方式。"
CHINESE = {
    "Provider sandbox · no real money": "支付平台沙箱，不涉及真实资金",
    "Back to the shop": "返回商店",
    "Back to the order": "返回订单",
    "All trades": "全部交易",
    "Trade number": "交易单号",
    "Pay": "支付",
    "Decline": "拒绝",
    "Cancel": "取消",
    "Paid.": "已支付。",
    "You can close this page.": "您可以关闭此页面。",
    "{amount} was given back.": "已退还 {amount}。",
    "This order has expired and cannot be paid any more.": "此订单已过期，不能再支付。",
    "This order is closed and cannot be paid any more.": "此订单已关闭，不能再支付。",
    "Card number": "卡号",
    "Expiry": "有效期",
    "CVC": "安全码",
    "Test cards": "测试卡",
    "Your bank asks": "银行验证",
    "Are you paying {amount} for {what}?": "您是否正在支付 {amount}（{what}）？",
    "Yes, it is me": "是，由本人支付",
    "No": "否",
    "This link is over": "链接已失效",
    "It could be used for five minutes. Go back to the shop for a fresh one.": (
        "链接有效期为五分钟。请返回商店重新获取。"
    ),
    "Unknown order": "订单不存在",
    "No trade of this number was opened here.": "这里没有此单号的交易。",
    "WeChat Pay": "微信支付",
    "Alipay": "支付宝",
    "Paid": "支付成功",
    "Declined": "拒绝",
    "Insufficient funds": "余额不足",
    "Expired": "已过期",
    "Wrong security code": "安全码错误",
    "Processing error": "处理出错",
    "3D Secure, then paid": "3D 验证后支付成功",
    "3D Secure, then declined": "3D 验证后拒绝",
    f"The bank declined it. {TRY_AGAIN}": f"银行拒绝了这笔付款。{_AGAIN}",
    f"There is not enough money on this card. {TRY_AGAIN}": f"卡内余额不足。{_AGAIN}",
    "This card has expired. Nothing was charged; use another card.": "此卡已过期。未扣款，请换一张卡。",
    "The security code is wrong. Nothing was charged; check the code and try again.": (
        "安全码错误。未扣款，请核对后重试。"
    ),
    "The bank could not be reached. Nothing was charged; try again in a moment.": (
        "无法连接银行。未扣款，请稍后重试。"
    ),
    "This is not a card number. Check it and try again.": "卡号有误，请核对后重试。",
    "The expiry date is written as MM / YY. Check it and try again.": "有效期的格式为 MM / YY，请核对后重试。",
    "The security code has three digits. Check it and try again.": "安全码为三位数字，请核对后重试。",
    "This looks like a real card, and only test cards work here. Nothing was charged.": (
        "这像是一张真实的卡，此处只接受测试卡。未扣款。"
    ),
    f"The bank did not confirm that it is you. {TRY_AGAIN}": f"银行未能确认是您本人。{_AGAIN}",
    "Provider sandbox": "支付平台沙箱",
    "sandbox": "沙箱",
    "Console": "控制台",
    "Also set:": "另有设置：",
    "What goes wrong": "模拟故障",
    "Wallet busy": "正在输入密码",
    "WeChat won't close a trade: the shopper is typing the password.": "微信不关闭交易：顾客正在输入密码。",
    "Delay": "延迟",
    "Notifications leave ten seconds late.": "通知延迟十秒发出。",
    "Duplicate ×10": "重复 10 次",
    "Each notification is sent ten times.": "每条通知发送十次。",
    "Reorder": "乱序",
    "Notifications leave in random order.": "通知以随机顺序发出。",
    "Wrong amount": "金额错误",
    "The shopper is charged ¥1 more.": "向顾客多收 1 元。",
    "Lose the answer": "丢失响应",
    "The next call takes effect, and its answer is lost.": "下一次调用生效，但响应丢失。",
    "Trades": "交易",
    "waiting": "待支付",
    "paid": "已支付",
    "expired": "已过期",
    "closed": "已关闭",
    ", {amount} back": "，已退 {amount}",
    "Nothing yet. Buy something in the shop and choose how to pay.": "暂无交易。请在商店下单并选择支付方式。",
}


def for_pages(request: HttpRequest) -> dict[str, object]:
    """Give every page the shop's address, and whether its reader wants Chinese."""
    return {"shop": state.shop(), "chinese": _is_chinese(request)}


def _is_chinese(request: HttpRequest) -> bool:
    """Return whether the browser's first language is Chinese."""
    wanted = parse_accept_lang_header(request.headers.get("Accept-Language", "").lower())
    return bool(wanted) and wanted[0][0].startswith("zh")


@register.simple_tag(takes_context=True)
def say(context: template.Context, sentence: str, **values: Any) -> str:
    """Write a sentence in the browser's language, with values where it has braces."""
    said = CHINESE.get(sentence, sentence) if context.get("chinese") else sentence
    return said.format(**values) if values else said
