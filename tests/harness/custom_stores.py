"""Persistent stores of an application's own classes, compiled when they are asked for.

``FileStore`` keeps its rows in a file below the task's directory, which it writes when it is flushed and when it is
closed; ``managesOffsets()`` is false, the default. ``DelegatingStore`` hands everything to a RocksDB store of Kafka
Streams, as classes do that encrypt or measure.
"""

from __future__ import annotations

from typing import Any

from tests.harness.java_source import compile_class
from tests.harness.streams import StreamsJvm

_IMPORTS = """
package %s;

import java.io.*;
import java.util.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.*;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.*;
"""

_FILE_STORE = """
public class FileSupplier implements KeyValueBytesStoreSupplier {
    private final String name;
    private final String where;

    public FileSupplier(String name, String where) { this.name = name; this.where = where; }
    public String name() { return name; }
    public String metricsScope() { return "file"; }
    public KeyValueStore get() { return new FileStore(name, where); }

    public static class Rows implements KeyValueIterator {
        private final Iterator entries;
        private Map.Entry next;

        Rows(Iterator entries) { this.entries = entries; step(); }
        private void step() { next = entries.hasNext() ? (Map.Entry) entries.next() : null; }
        public boolean hasNext() { return next != null; }
        public Object peekNextKey() { return next.getKey(); }
        public Object next() {
            KeyValue found = KeyValue.pair(next.getKey(), next.getValue());
            step();
            return found;
        }
        public void remove() { throw new UnsupportedOperationException(); }
        public void close() { }
    }

    public static class FileStore implements KeyValueStore, StateRestoreCallback {
        private final String name;
        private final String where;
        private final TreeMap rows = new TreeMap();
        private File file;
        private boolean open;

        FileStore(String name, String where) { this.name = name; this.where = where; }

        public void init(StateStoreContext context, StateStore root) {
            file = new File(context.stateDir(), where);
            file.getParentFile().mkdirs();
            try {
                if (file.exists()) {
                    DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(file)));
                    int count = in.readInt();
                    for (int i = 0; i < count; i++) {
                        byte[] key = new byte[in.readInt()];
                        in.readFully(key);
                        byte[] value = new byte[in.readInt()];
                        in.readFully(value);
                        rows.put(Bytes.wrap(key), value);
                    }
                    in.close();
                }
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
            open = true;
            context.register(root, this);
        }

        public void restore(byte[] key, byte[] value) { set(Bytes.wrap(key), value); }

        private void set(Object key, Object value) {
            if (value == null) { rows.remove(key); } else { rows.put(key, value); }
        }

        private void write() {
            try {
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file)));
                out.writeInt(rows.size());
                Iterator entries = rows.entrySet().iterator();
                while (entries.hasNext()) {
                    Map.Entry entry = (Map.Entry) entries.next();
                    byte[] key = ((Bytes) entry.getKey()).get();
                    byte[] value = (byte[]) entry.getValue();
                    out.writeInt(key.length);
                    out.write(key);
                    out.writeInt(value.length);
                    out.write(value);
                }
                out.close();
            } catch (IOException error) {
                throw new RuntimeException(error);
            }
        }

        public String name() { return name; }
        public boolean persistent() { return true; }
        public Position getPosition() { return Position.emptyPosition(); }
        public boolean isOpen() { return open; }
        public void flush() { if (open) { write(); } }
        public void commit(Map offsets) { flush(); }
        public void close() { flush(); open = false; }

        public void put(Object key, Object value) { set(key, value); }
        public Object putIfAbsent(Object key, Object value) {
            Object old = rows.get(key);
            if (old == null) { set(key, value); }
            return old;
        }
        public void putAll(List entries) {
            for (int i = 0; i < entries.size(); i++) {
                KeyValue entry = (KeyValue) entries.get(i);
                set(entry.key, entry.value);
            }
        }
        public Object delete(Object key) { return rows.remove(key); }
        public Object get(Object key) { return rows.get(key); }
        public KeyValueIterator range(Object from, Object to) {
            return new Rows(rows.subMap(from, true, to, true).entrySet().iterator());
        }
        public KeyValueIterator all() { return new Rows(rows.entrySet().iterator()); }
        public long approximateNumEntries() { return rows.size(); }
    }
}
"""

_WRAPPED_STORE = """
public class WrappedSupplier implements KeyValueBytesStoreSupplier {
    private final String name;

    public WrappedSupplier(String name) { this.name = name; }
    public String name() { return name; }
    public String metricsScope() { return "wrapped"; }
    public KeyValueStore get() { return new WrappedStore((KeyValueStore) Stores.persistentKeyValueStore(name).get()); }

    public static class WrappedStore implements KeyValueStore {
        private final KeyValueStore inner;

        WrappedStore(KeyValueStore inner) { this.inner = inner; }
        public void init(StateStoreContext context, StateStore root) { inner.init(context, root); }
        public String name() { return inner.name(); }
        public boolean persistent() { return true; }
        public Position getPosition() { return inner.getPosition(); }
        public boolean isOpen() { return inner.isOpen(); }
        public void flush() { inner.flush(); }
        public void commit(Map offsets) { inner.commit(offsets); }
        public void close() { inner.close(); }
        public void put(Object key, Object value) { inner.put(key, value); }
        public Object putIfAbsent(Object key, Object value) { return inner.putIfAbsent(key, value); }
        public void putAll(List entries) { inner.putAll(entries); }
        public Object delete(Object key) { return inner.delete(key); }
        public Object get(Object key) { return inner.get(key); }
        public KeyValueIterator range(Object from, Object to) { return inner.range(from, to); }
        public KeyValueIterator all() { return inner.all(); }
        public long approximateNumEntries() { return inner.approximateNumEntries(); }
    }
}
"""


def file_supplier(jvm: StreamsJvm, name: str, where: str = "") -> Any:
    """A ``KeyValueBytesStoreSupplier`` of stores that keep their rows in one file.

    Args:
        jvm: where it is compiled.
        name: the store's.
        where: the file, relative to the task's directory; ``<name>/rows`` without.
    """
    return _made(jvm, "FileSupplier", _FILE_STORE, name, where or f"{name}/rows")


def wrapped_supplier(jvm: StreamsJvm, name: str) -> Any:
    """A ``KeyValueBytesStoreSupplier`` of stores of a class that hands everything to a RocksDB store."""
    return _made(jvm, "WrappedSupplier", _WRAPPED_STORE, name)


def _made(jvm: StreamsJvm, name: str, source: str, *arguments: str) -> Any:
    package = "tests.harness"

    def load() -> Any:
        return compile_class(jvm, f"{package}.{name}", _IMPORTS % package + source)

    found = jvm.functions.kept(("custom store", name), load)
    strings = jvm.gateway.new_array(jvm.jvm.java.lang.Class, len(arguments))
    values = jvm.gateway.new_array(jvm.jvm.java.lang.Object, len(arguments))
    for i, argument in enumerate(arguments):
        strings[i], values[i] = jvm.functions.type("java.lang.String"), argument
    return found.getConstructor(strings).newInstance(values)
