"""Java classes from source text, compiled inside the harness's JVM: a JRE is enough, no ``javac`` is needed.

The compiler is Janino, which ships with pyspark. It has a class loader of its own, so the class path of the JVM, and
with it the archive of its classes (``tests.harness.archives``), stays what it is. Janino knows Java 8 without lambdas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from tests.harness import jars

if TYPE_CHECKING:
    from tests.harness.streams import StreamsJvm


class NotCompiled(ValueError):
    """The source is no Java that Janino understands; the message carries the source and what the compiler said."""


def compile_class(jvm: StreamsJvm, name: str, source: str) -> Any:
    """The ``java.lang.Class`` of that full name out of a compilation unit.

    The class sees everything on the JVM's class path. Each needs a name of its own: py4j finds methods by the
    name of the class.

    Raises:
        NotCompiled: the compiler refused the source.
    """
    compiler = _compiler_class(jvm).getDeclaredConstructor(None).newInstance(None)
    parent = jvm.jvm.java.lang.ClassLoader.getSystemClassLoader()
    compiler.setParentClassLoader(parent)
    try:
        compiler.cook(source)
    except Py4JJavaError as error:
        raise NotCompiled(f"{error.java_exception.toString()}\n{source}") from error
    return compiler.getClassLoader().loadClass(name)


def _compiler_class(jvm: StreamsJvm) -> Any:
    """Janino's ``SimpleCompiler``, loaded once for each JVM."""

    def load() -> Any:
        names = ("janino", "commons-compiler")
        found = [next(jars.pyspark_jars().glob(f"{name}-[0-9]*.jar")) for name in names]
        urls = jvm.gateway.new_array(jvm.jvm.java.net.URL, len(found))
        for i, jar in enumerate(found):
            urls[i] = jvm.jvm.java.io.File(str(jar)).toURI().toURL()
        return jvm.jvm.java.net.URLClassLoader(urls).loadClass("org.codehaus.janino.SimpleCompiler")

    return jvm.functions.kept(("janino",), load)
