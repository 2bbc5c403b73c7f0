import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { testFolder } from '../../helpers/folder.ts';

/** Runs the check on a file with this content; returns `LINE ID` of each hit. */
function check(name: string, content: string): readonly string[] {
  const file = path.join(testFolder(), name);
  writeFileSync(file, content);
  try {
    execFileSync(process.execPath, [path.join(packageRoot, '.build/words.mjs'), file], { encoding: 'utf8' });
    return [];
  } catch (error) {
    const { stdout } = error as { readonly stdout: string };
    return [...stdout.matchAll(/:(\d+): ".*" \(([\w-]+)\):/g)].map(([, line, id]) => `${line} ${id}`);
  }
}

// Joined here, so that the check does not find them in this file.
const again = ['a', 'new'].join('');
const doll = '$';

it('The check of words finds comments, messages and pages, and skips code, inline code and links', () => {
  const source = [
    '/**',
    ' * Returns the value, made by',
    ` * itself. Not \`${again}\`.`,
    ' */',
    `export const ${again} = (count: number) => \`It begins ${doll}{count} ${again}\`;`,
    `// It begins`,
    `// ${again}.`,
    `export const query = 'SELECT ${again} FROM it';`,
  ].join('\n');
  expect(check('source.ts', source)).toEqual(['2 by-itself', `7 ${again}`, `5 ${again}`]);
  expect(check('part.tsx', `export const part = <p>Begin it ${again}</p>;`)).toEqual([`1 ${again}`]);
  expect(
    check('page.md', `# Begin\n\n- by [it](${again}.md)\n  self, ${again}\n\n\`\`\`\nit begins ${again}\n\`\`\`\n`),
  ).toEqual([`4 ${again}`]);
  expect(check('clean.ts', '/** Returns the value. */\nexport const value = 1;\n')).toEqual([]);
});
