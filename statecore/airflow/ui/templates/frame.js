// Airflow sets its theme as a class of its root element; follow it, also when it changes.
try {
  const root = parent.document.documentElement;
  const follow = () => { document.documentElement.className = root.className; };
  follow();
  new MutationObserver(follow).observe(root, {attributes: true, attributeFilter: ["class"]});
} catch (error) { /* not in a frame of the UI: the browser's preference applies */ }
// The frame may not navigate its parent page; a link in the parent page may.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || parent === window || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const own = parent.document.createElement("a");
  own.href = link.href;
  parent.document.body.append(own);
  own.click();
  own.remove();
});
