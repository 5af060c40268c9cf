"""Java functions put together from methods the JVM already has: no compiler, and no callbacks into Python.

A py4j callback costs a round trip to Python for each record. Here a function is a ``MethodHandle``: looked up by
name, bound, chained, and turned into an instance of any one-method interface (``ValueMapper``, ``Reducer``,
``Function``…) by ``MethodHandleProxies``. It runs inside the JVM alone, so a topology processes hundreds of
thousands of records a second::

    f = Functions(gateway)
    split = f.bind(f.method("java.lang.String", "split", "java.lang.String[]", "java.lang.String"), 1, "|")
    carrier = f.then(split, f.element("java.lang.String", 3))          # value -> value.split("|")[3]
    mapper = f.instance("org.apache.kafka.streams.kstream.ValueMapper", carrier)

``recorder`` does the same for interfaces with several methods (a restore listener): a proxy whose every call lands,
with its time, method and arguments, in a list that Python reads afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

_PRIMITIVES = {
    name: f"java.lang.{wrapper}"
    for name, wrapper in [
        ("long", "Long"),
        ("int", "Integer"),
        ("boolean", "Boolean"),
        ("void", "Void"),
        ("byte", "Byte"),
    ]
}

P = ParamSpec("P")


def _once(find: Callable[Concatenate[Functions, P], Any]) -> Callable[Concatenate[Functions, P], Any]:
    """Asks the JVM once for what is named by the same words: each question costs several round trips."""

    @wraps(find)
    def found(self: Functions, *words: P.args, **named: P.kwargs) -> Any:
        return self.kept((find.__name__, *words), lambda: find(self, *words, **named))

    return found


class Functions:
    """The combinators, over one py4j gateway. Types are given by name: ``long``, ``byte[]``, ``java.lang.String[]``…"""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        # Each name on the way to a class is a question to the JVM, too.
        self._classes = gateway.jvm.java.lang.Class
        self._arrays = gateway.jvm.java.lang.reflect.Array
        self._handles = gateway.jvm.java.lang.invoke.MethodHandles
        self._types = gateway.jvm.java.lang.invoke.MethodType
        self._lookup = self._handles.publicLookup()
        self._found: dict[tuple[object, ...], Any] = {}

    def kept(self, asked: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` returned the first time that this was asked for."""
        if asked not in self._found:
            self._found[asked] = make()
        return self._found[asked]

    @_once
    def type(self, name: str) -> Any:
        """The ``java.lang.Class`` of that name."""
        if name in _PRIMITIVES:
            wrapper = self._classes.forName(_PRIMITIVES[name])
            return wrapper.getField("TYPE").get(None)
        if name == "byte[]":
            return self._classes.forName("[B")
        if name.endswith("[]"):
            return self._classes.forName(f"[L{name[:-2]};")
        return self._classes.forName(name)

    @_once
    def method(self, owner: str, name: str, returns: str, *parameters: str) -> Any:
        """A handle of an instance method; the instance is its first argument."""
        return self._lookup.findVirtual(self.type(owner), name, self._signature(returns, *parameters))

    @_once
    def static(self, owner: str, name: str, returns: str, *parameters: str) -> Any:
        """A handle of a static method."""
        return self._lookup.findStatic(self.type(owner), name, self._signature(returns, *parameters))

    @_once
    def constructor(self, owner: str, *parameters: str) -> Any:
        """A handle of a public constructor."""
        return self._lookup.findConstructor(self.type(owner), self._signature("void", *parameters))

    @_once
    def field(self, owner: str, name: str, of: str) -> Any:
        """A handle that reads a public instance field."""
        return self._lookup.findGetter(self.type(owner), name, self.type(of))

    def element(self, of: str, index: int) -> Any:
        """A handle ``array -> array[index]``."""
        return self.bind(self._handles.arrayElementGetter(self.type(f"{of}[]")), 1, index)

    def bind(self, handle: Any, position: int, *values: Any) -> Any:
        """The handle with these values fixed from that argument position on."""
        return self._handles.insertArguments(handle, position, self._array("java.lang.Object", *values))

    def constant(self, returns: str, value: Any) -> Any:
        """A handle ``() -> value``."""
        return self._handles.constant(self.type(returns), value)

    def identity(self, of: str) -> Any:
        """A handle ``x -> x``."""
        return self._handles.identity(self.type(of))

    def cast(self, handle: Any, returns: str, *parameters: str) -> Any:
        """The handle seen with another signature; arguments and result are cast, boxed and unboxed."""
        return handle.asType(self._signature(returns, *parameters))

    def then(self, first: Any, second: Any) -> Any:
        """``second(first(…))``."""
        wanted = second.type().parameterType(0)
        return self._handles.filterReturnValue(first.asType(first.type().changeReturnType(wanted)), second)

    def on_arguments(self, handle: Any, position: int, *filters: Any) -> Any:
        """The handle with a function put before each of its arguments from that position on."""
        fitted = [
            one.asType(one.type().changeReturnType(handle.type().parameterType(position + i)))
            for i, one in enumerate(filters)
        ]
        array = self._array("java.lang.invoke.MethodHandle", *fitted)
        return self._handles.filterArguments(handle, position, array)

    def ignoring(self, handle: Any, position: int, *types: str) -> Any:
        """The handle with further arguments, which it ignores, from that position on."""
        return self._handles.dropArguments(handle, position, self._array("java.lang.Class", *map(self.type, types)))

    def same_argument(self, handle: Any) -> Any:
        """``x -> handle(x, x, …)``: all arguments must have one type."""
        return self.repeated(handle, 0)

    def repeated(self, handle: Any, position: int) -> Any:
        """``(…, x) -> handle(…, x, x, …)``: the arguments from that position on are one, and must have one type."""
        kind = handle.type()
        count = kind.parameterCount()
        less = kind.dropParameterTypes(position + 1, count)
        order = self._gateway.new_array(self._jvm.int, count)
        for i in range(count):
            order[i] = min(i, position)
        return self._handles.permuteArguments(handle, less, order)

    def either(self, test: Any, yes: Any, no: Any) -> Any:
        """``yes(…)`` where the test of the same arguments is true, else ``no(…)``."""
        return self._handles.guardWithTest(test, yes, no)

    def join(self, separator: str, count: int) -> Any:
        """``(CharSequence, …) -> String``: the arguments with the separator between them."""
        handle = self.static(
            "java.lang.String", "join", "java.lang.String", "java.lang.CharSequence", "java.lang.CharSequence[]"
        )
        return self.bind(handle, 0, separator).asCollector(self.type("java.lang.CharSequence[]"), count)

    def instance(self, interface: str, handle: Any) -> Any:
        """An instance of a one-method interface that calls the handle."""
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self.type(interface), handle)

    def call(self, handle: Any, *arguments: Any) -> Any:
        """Calls a handle: names the overload that py4j, which sees values only, would have to guess."""
        return handle.invokeWithArguments(self._array("java.lang.Object", *arguments))

    def recorder(self, interface: str, *ignored: str) -> tuple[Any, Any]:
        """An instance of an interface of void methods, and the list its calls land in.

        Each element of the list is again a list: ``System.nanoTime()``, the ``Method``, the arguments as ``Object[]``.
        Calls of the ``ignored`` methods leave nothing.
        """
        calls = self._jvm.java.util.concurrent.CopyOnWriteArrayList()
        objects, method = "java.lang.Object", "java.lang.reflect.Method"
        as_list = self.static("java.util.Arrays", "asList", "java.util.List", f"{objects}[]")
        row = as_list.asCollector(self.type(f"{objects}[]"), 3)
        clock = self.cast(self.static("java.lang.System", "nanoTime", "long"), objects)
        row = self._handles.foldArguments(row, clock)  # (method, arguments) -> List
        add = self.bind(self.method("java.util.Collection", "add", "boolean", objects), 0, calls)
        signature = (objects, objects, method, f"{objects}[]")
        note = self.cast(self.ignoring(self.then(row, add), 0, objects), *signature)
        contains = self.bind(
            self.method("java.util.Collection", "contains", "boolean", objects), 0, self._list(*ignored)
        )
        is_ignored = self.then(self.method(method, "getName", "java.lang.String"), contains)
        nothing = self.ignoring(self.constant(objects, None), 0, *signature[1:])
        return self.proxy(interface, self.either(self.ignoring(is_ignored, 0, objects), nothing, note)), calls

    def proxy(self, interface: str, handle: Any) -> Any:
        """An instance of any interface, whose every call becomes ``handle(instance, Method, Object[])``."""
        handler = self.instance("java.lang.reflect.InvocationHandler", handle)
        kind = self.type(interface)
        interfaces = self._array("java.lang.Class", kind)
        return self._jvm.java.lang.reflect.Proxy.newProxyInstance(kind.getClassLoader(), interfaces, handler)

    @_once
    def _signature(self, returns: str, *parameters: str) -> Any:
        types = self._array("java.lang.Class", *map(self.type, parameters))
        return self._types.methodType(self.type(returns), types)

    def _array(self, of: str, *values: Any) -> Any:
        array = self._arrays.newInstance(self.type(of), len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array

    def _list(self, *values: str) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made
