// Bundles the packages that the compiled program imports, one file a package and shared chunks, and makes the program
// import those: `node .build/bundle-packages.mjs DIST`. Opening and linking a package's hundreds of small files took half
// of the CPU time in which a process of the program starts.
//
// In: DIST, the output of tsc for src, and node_modules. Out: DIST/packages, and the imports of DIST changed in place;
// the program's own modules stay one file each. A way of import that cannot be bundled is an error.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { rolldown } from 'rolldown';
import { parseAst } from 'rolldown/parseAst';

const root = path.resolve(import.meta.dirname, '..');
const dist = path.resolve(process.argv[2] ?? 'dist');
const folder = path.join(dist, 'packages');

/** Name prefix of the entries that are made here: the modules that export of a package what the program imports. */
const entryPrefix = 'tributary-entry:';
/** Holds the native engine, in a package for each platform, and is therefore loaded from node_modules. */
const native = '@duckdb/node-bindings';
const nativeOf = '@duckdb/node-api';

const isPackage = (specifier) => typeof specifier === 'string' && !/^(?:\.|\/|node:)/.test(specifier);
/** The file of a package below DIST/packages: what is required is CommonJS, what is imported a module. */
const fileOf = (specifier, isRequired) =>
  `${specifier.replace(/^@/, '').replace(/\.js$/, '').replaceAll('/', '-')}${isRequired ? '.cjs' : '.js'}`;

/** Calls `visit(node, parent)` for a syntax tree, outermost first. */
function walk(node, visit, parent) {
  visit(node, parent);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value])
      if (typeof child?.type === 'string') walk(child, visit, node);
  }
}

/** The names that a declaration or a destructuring pattern takes of a module. */
function namesOf(items) {
  return items.map((item) => {
    if (item.type === 'ImportDefaultSpecifier') return 'default';
    const name = item.imported ?? item.local ?? item.key;
    if (name?.type !== 'Identifier' || item.type === 'ImportNamespaceSpecifier')
      throw new Error(`${item.type} cannot be bundled: import the package's members by their names`);
    return name.name;
  });
}

/** `createRequire(...)('package')`: as the program loads what is slow to import. */
const isRequire = (node) => node.type === 'CallExpression' && node.callee.callee?.name === 'createRequire';

/** The uses of packages in one module: which, where the specifier stands, which names, and whether it is required. */
function findUses(code) {
  const uses = [];
  const add = (literal, names, isRequired = false) => {
    if (isPackage(literal?.value)) uses.push({ specifier: literal.value, literal, names, isRequired });
  };
  walk(parseAst(code), (node, parent) => {
    if (node.type === 'ImportDeclaration' || node.type === 'ExportNamedDeclaration')
      add(node.source, isPackage(node.source?.value) ? namesOf(node.specifiers) : []);
    else if (node.type === 'ExportAllDeclaration' && isPackage(node.source.value))
      throw new Error(`export * from '${node.source.value}' cannot be bundled`);
    else if (isRequire(node)) add(node.arguments[0], [], true);
    else if (node.type === 'VariableDeclarator' && node.init?.argument?.type === 'ImportExpression')
      add(node.init.argument.source, node.id.type === 'ObjectPattern' ? namesOf(node.id.properties) : []);
    else if (node.type === 'ImportExpression' && parent?.type !== 'AwaitExpression' && isPackage(node.source.value))
      throw new Error(`import('${node.source.value}') cannot be bundled unless its members are taken at once`);
  });
  return uses;
}

/** Makes a module use the bundled packages; on their lines only columns change, so that source maps stay right. */
function rewrite(file, code, uses) {
  let changed = code;
  for (const { specifier, literal, isRequired } of uses.toSorted((a, b) => b.literal.start - a.literal.start)) {
    const target = path.relative(path.dirname(file), path.join(folder, fileOf(specifier, isRequired)));
    changed = `${changed.slice(0, literal.start)}'${target.startsWith('.') ? target : `./${target}`}'${changed.slice(literal.end)}`;
  }
  if (changed !== code) writeFileSync(file, changed);
}

/** Gives each entry its text, and the native engine its place as npm has installed it. */
const entries = (packages) => ({
  name: 'entries',
  resolveId(id, importer) {
    if (id.startsWith(entryPrefix)) return id;
    if (id === native) return `${entryPrefix}${native}`;
    // The entries stand in no folder: what they export is found from the program's own.
    return importer?.startsWith(entryPrefix) ? this.resolve(id, path.join(root, 'package.json')) : undefined;
  },
  load(id) {
    if (!id.startsWith(entryPrefix)) return undefined;
    const specifier = id.slice(entryPrefix.length);
    if (specifier === native) {
      return `import { createRequire } from 'node:module';
        const packages = createRequire(__filename);
        module.exports = createRequire(packages.resolve('${nativeOf}'))('${native}');`;
    }
    return `export { ${[...(packages.get(specifier) ?? [])].join(', ')} } from '${specifier}';`;
  },
});

async function write(input, format, plugin) {
  const bundle = await rolldown({ cwd: root, platform: 'node', input, plugins: [plugin] });
  const extension = format === 'cjs' ? 'cjs' : 'js';
  await bundle.write({
    dir: folder,
    format,
    entryFileNames: `[name].${extension}`,
    chunkFileNames: `shared-[name].${extension}`,
  });
  await bundle.close();
}

const imported = new Map();
const required = new Set();
for (const name of readdirSync(dist, { recursive: true }).filter((each) => each.endsWith('.js'))) {
  const file = path.join(dist, name);
  const code = readFileSync(file, 'utf8');
  const uses = findUses(code);
  for (const { specifier, names, isRequired } of uses) {
    if (isRequired) required.add(specifier);
    else imported.set(specifier, new Set([...(imported.get(specifier) ?? []), ...names]));
  }
  rewrite(file, code, uses);
}
const stem = (specifier) => fileOf(specifier, false).replace(/\.js$/, '');
const inputOf = (specifiers, prefix) =>
  Object.fromEntries([...specifiers].map((each) => [stem(each), `${prefix}${each}`]));
await write(inputOf(imported.keys(), entryPrefix), 'esm', entries(imported));
await write(inputOf(required, ''), 'cjs', entries(imported));
