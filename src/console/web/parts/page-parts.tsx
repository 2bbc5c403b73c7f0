import type { ComponentType } from 'preact';
import { hrefOf, path } from '../frame/router.ts';

/** A part of a page, with an address of its own: a path below `/console/`. */
export interface PagePart {
  readonly path: string;
  readonly title: string;
  readonly component: ComponentType;
}

/** A page of several parts, one of which is shown: the first, where the address names none. */
export function PageParts({
  title,
  parts,
}: {
  readonly title: string;
  readonly parts: readonly [PagePart, ...PagePart[]];
}) {
  const shown = parts.find((part) => part.path === path.value) ?? parts[0];
  const Part = shown.component;
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>{title}</h1>
        <nav class="tabs" aria-label={`Parts of ${title}`}>
          {parts.map((part) => (
            <a key={part.path} href={hrefOf(part.path)} aria-current={part === shown ? 'page' : undefined}>
              {part.title}
            </a>
          ))}
        </nav>
      </div>
      <Part />
    </>
  );
}
