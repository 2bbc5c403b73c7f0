/** The page's style: light and dark, from 320 pixels on. */
export const pageStyle = `
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --back: #fff; --panel: #f4f6f8; --line: #d5dbe1; --link: #0b57a4; --verb: #13622e; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ec; --soft: #a3adb8; --back: #14181d; --panel: #1e242b; --line: #39434e; --link: #7db8f5; --verb: #7fd49a; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; padding: .5rem; background: var(--back); z-index: 1; }
.layout { display: grid; grid-template-columns: minmax(14rem, 20rem) minmax(0, 1fr); }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1rem; border-right: 1px solid var(--line); background: var(--panel); }
nav ul { list-style: none; margin: 0 0 1rem; padding: 0; }
nav li a { display: block; padding: .15rem 0; overflow-wrap: anywhere; }
nav h2 { font-size: 1rem; margin: .5rem 0 0; }
main { padding: 1rem 2rem 4rem; max-width: 62rem; min-width: 0; }
section { border-top: 1px solid var(--line); padding: 1rem 0; }
h3 { margin: 0; }
h4 { margin: 1rem 0 0; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
code, pre { font: .875rem/1.45 ui-monospace, monospace; }
code { overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .75rem; background: var(--panel); border: 1px solid var(--line); border-radius: .3rem; overflow-x: auto; max-height: 24rem; }
.verb { font-weight: bold; color: var(--verb); }
.type, .lead { color: var(--soft); }
em { font-style: normal; font-weight: bold; font-size: .875rem; }
dt { margin-top: .5rem; }
dd { margin: 0 0 0 1rem; padding-left: .75rem; border-left: 2px solid var(--line); }
summary { cursor: pointer; padding: .3rem 0; color: var(--link); }
label { display: block; font-weight: bold; }
input { width: 100%; padding: .4rem; font: inherit; color: inherit; background: var(--back); border: 1px solid var(--soft); border-radius: .3rem; }
[hidden] { display: none; }
@media (max-width: 48rem) {
  .layout { grid-template-columns: minmax(0, 1fr); }
  nav { position: static; height: auto; max-height: 45vh; border-right: 0; border-bottom: 1px solid var(--line); }
  main { padding: 1rem; }
}
@media print { nav { display: none; } .layout { display: block; } pre { max-height: none; white-space: pre-wrap; } }
`;

/** Filters the operations; without it the page shows all of them. */
export const pageScript = `
const field = document.querySelector('input');
const found = document.querySelector('[role=status]');
document.querySelector('form').hidden = false;
document.querySelector('form').addEventListener('submit', (event) => event.preventDefault());
field.addEventListener('input', () => {
  const words = field.value.toLowerCase().split(' ').filter(Boolean);
  let count = 0;
  for (const call of document.querySelectorAll('[data-call]')) {
    const isWanted = words.every((word) => call.dataset.call.includes(word));
    call.hidden = !isWanted;
    document.querySelector('nav a[href="#' + call.id + '"]').parentElement.hidden = !isWanted;
    if (isWanted) count += 1;
  }
  found.textContent = words.length === 0 ? '' : count + ' found';
});
`;
