// Builds the pages of the console from src/console/web: a minified program and style sheet, whose names have a hash of
// their content, and the index.
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { rolldown } from 'rolldown';

const root = path.resolve(import.meta.dirname, '..');
const web = path.join(root, 'src/console/web');

/** Removes comments and white space. Strings in the style sheet must have neither. */
function minifyStyle(text) {
  return text
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .replace(/\s*([{};,])\s*/g, '$1')
    .replace(/;}/g, '}')
    .trim();
}

/** Writes a file and returns its name, which has a hash of its content. */
function writeHashed(assets, name, content) {
  const { name: stem, ext } = path.parse(name);
  const hashed = `${stem}-${createHash('sha256').update(content).digest('hex').slice(0, 10)}${ext}`;
  writeFileSync(path.join(assets, hashed), content);
  return hashed;
}

async function bundleProgram() {
  const build = await rolldown({
    cwd: root,
    platform: 'browser',
    input: path.join(web, 'main.tsx'),
    tsconfig: path.join(web, 'tsconfig.json'),
    transform: { target: 'es2023' },
    checks: { bundlerTimings: false },
    onLog: (level, { message }) => {
      if (level === 'warn') throw new Error(message);
    },
  });
  const { output } = await build.generate({ format: 'esm', minify: true, codeSplitting: false, comments: false });
  await build.close();
  return output[0].code;
}

export async function bundleConsole(out) {
  const assets = path.join(out, 'assets');
  mkdirSync(assets, { recursive: true });
  const styles = readdirSync(path.join(web, 'styles'))
    .toSorted()
    .map((name) => path.join('src/console/web/styles', name));
  const style = styles.map((file) => readFileSync(path.join(root, file), 'utf8')).join('\n');
  const names = {
    program: writeHashed(assets, 'console.js', await bundleProgram()),
    style: writeHashed(assets, 'console.css', minifyStyle(style)),
    icon: writeHashed(assets, 'icon.svg', readFileSync(path.join(web, 'icon.svg'))),
  };
  const index = readFileSync(path.join(web, 'index.html'), 'utf8').replace(
    /\{\{(\w+)\}\}/g,
    (_, name) => `/console/assets/${names[name]}`,
  );
  writeFileSync(path.join(out, 'index.html'), index);
}
