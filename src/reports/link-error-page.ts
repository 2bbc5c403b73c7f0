import { createHash } from 'node:crypto';

/** The refusal of a link, in the envelope of the export area. */
export interface LinkError {
  readonly code: number;
  readonly message: string;
  readonly data: { readonly error: { readonly detail: string } } | null;
}

const style = `:root{color-scheme:light dark}
body{margin:0;min-height:100vh;display:grid;place-items:center;font:16px/1.5 system-ui,sans-serif;background:light-dark(#f4f6f8,#10161b);color:light-dark(#17222b,#e6edf2)}
main{max-width:34rem;padding:2rem}
h1{font-size:1.5rem;line-height:1.25}
a{color:light-dark(#0b6b74,#5fd0d8)}
.small{color:light-dark(#51606c,#a3b2be);font-size:.9rem}`;

/** The page runs and loads nothing, and passes the link to no other page. */
export const refusedPageHeaders = {
  'content-security-policy': `default-src 'none'; style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

const ended = 'The link has expired or is incomplete, or its user was removed or has a new secret.';
const again = 'Get a new link there, or create the export again with the same columns and filters.';
const later = 'Reload this page in a few seconds. If that does not help, contact the operator of the service.';

function describe({ code, data }: LinkError): readonly [title: string, what: string, todo: string] {
  if (code === 403) return ['This link is invalid or has expired', ended, again];
  if (code === 404) return ['The file no longer exists', 'Files are deleted when their links expire.', again];
  const detail = data?.error.detail;
  return detail === undefined
    ? ['The file cannot be sent now', 'The service cannot read the data of the link.', later]
    : ['The file cannot be sent', `${detail}.`, again];
}

/** Reports whether the client is a browser: programs do not accept XHTML. */
export function wantsPage(accept: string | undefined): boolean {
  return accept !== undefined && /\btext\/html\b/.test(accept) && accept.includes('application/xhtml+xml');
}

/** Renders the page for a person whose link leads to no file. Of the request target, only the id is shown. */
export function renderLinkErrorPage(refusal: LinkError, target: string): string {
  const [title, what, todo] = describe(refusal);
  const id = /^\/files\/([1-9]\d{0,14})\//.exec(target)?.[1];
  const place = id === undefined ? 'exports' : `exports/${id}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · tributary</title>
<style>${style}</style>
</head>
<body>
<main>
<h1>${title}</h1>
<p>${what}</p>
<p>If you created the export, sign in and open <a href="../../console/${place}">Exports</a>. ${todo}</p>
<p>If someone sent you the link, ask them for a new link or for the file.</p>
<p class="small">${id === undefined ? '' : `Export ${id}. `}Status ${refusal.code}.</p>
</main>
</body>
</html>
`;
}
