"""Operations: acts of people about money, and figures for them.

Every act writes an audit line; none decides about money itself: settlement does. Used by admin and management.
"""
