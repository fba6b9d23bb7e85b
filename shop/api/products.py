"""Calls about products and likes."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from idempotency.views import not_keyed
from shop.api import schema
from shop.api.answers import caller_id
from shop.api.serializers import ProductResponse, represent_product
from shop.catalog import products as catalog

PRODUCT_MISSING = {404: "product_not_found"}


class ProductList(APIView):
    @extend_schema(
        operation_id="products_list",
        summary="List the products",
        responses=schema.responses({200: ProductResponse(many=True)}, {}),
    )
    def get(self, request: Request) -> Response:
        products = catalog.list_products(user_id=caller_id(request))
        return Response([represent_product(product) for product in products])


class ProductDetail(APIView):
    @extend_schema(
        operation_id="products_read",
        summary="Read a product",
        responses=schema.responses({200: ProductResponse}, PRODUCT_MISSING),
    )
    def get(self, request: Request, sku: str) -> Response:
        return Response(represent_product(catalog.get_product(sku=sku, user_id=caller_id(request))))


@not_keyed
class ProductLike(APIView):
    """Calls that set and remove the caller's like: idempotent, so neither needs a key."""

    @extend_schema(
        operation_id="products_like",
        summary="Like a product",
        request=None,
        responses=schema.responses({204: None}, PRODUCT_MISSING),
    )
    def put(self, request: Request, sku: str) -> Response:
        catalog.like(sku=sku, user_id=caller_id(request))
        return Response(status=204)

    @extend_schema(
        operation_id="products_unlike",
        summary="Take a like away",
        responses=schema.responses({204: None}, PRODUCT_MISSING),
    )
    def delete(self, request: Request, sku: str) -> Response:
        catalog.unlike(sku=sku, user_id=caller_id(request))
        return Response(status=204)
