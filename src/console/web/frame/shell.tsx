import { useLayoutEffect, useRef } from 'preact/hooks';
import { Message } from '../parts/message.tsx';
import { pages, type Page } from '../pages.ts';
import { isConnected, isSignedOut } from './client.ts';
import { GuardedPage } from './guarded-page.tsx';
import { hrefOf, path } from './router.ts';
import { cannotTell, isOutdated, isShownOnce, session, type SignedIn } from './session.ts';
import { BrandMark, SignInDialog, SignInPage } from './sign-in.tsx';
import { UserMenu } from './user-menu.tsx';

/** The pages of a user: an operator need not belong to an account. */
const pagesOf = ({ isOperator, idAccount }: SignedIn): readonly Page[] =>
  pages.filter(({ isFor }) => (isFor === 'operator' ? isOperator : idAccount !== 0));

/** The page of the address; at the front door, the first that the user has. */
function findPage(of: SignedIn): Page | undefined {
  const [first = ''] = path.value.split('/');
  const own = pagesOf(of);
  return own.find((page) => page.path === first) ?? (first === '' ? own[0] : undefined);
}

function Navigation({ of, shown }: { readonly of: SignedIn; readonly shown: Page | undefined }) {
  const nav = useRef<HTMLElement>(null);
  // In a narrow window the row of links scrolls: the page that is shown is among those that are seen.
  useLayoutEffect(() => {
    const own = nav.current;
    const link = own?.querySelector<HTMLElement>('[aria-current]');
    if (own && link) own.scrollLeft = link.offsetLeft + link.offsetWidth / 2 - own.offsetLeft - own.clientWidth / 2;
  }, [shown]);
  return (
    <nav ref={nav} aria-label="Pages">
      <ul>
        {pagesOf(of).map((page) => (
          <li key={page.path}>
            <a href={hrefOf(page.path)} aria-current={page === shown ? 'page' : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** The page that is shown; whoever comes to it by a link or a key begins at its heading. */
function ShownPage({ page }: { readonly page: Page | undefined }) {
  const before = useRef<{ readonly page: Page | undefined }>();
  useLayoutEffect(() => {
    document.title = `${page?.title ?? 'Not found'} · tributary`;
    // Also where the link that led here went with what was shown before.
    const isElsewhere = before.current?.page !== page || document.activeElement === document.body;
    if (before.current !== undefined && isElsewhere)
      document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true });
    before.current = { page };
  }, [page, path.value]);
  if (page === undefined)
    return (
      <div class="empty">
        <h1 tabIndex={-1}>There is no such page</h1>
        <p>
          <a href={hrefOf('')}>New export</a>
        </p>
      </div>
    );
  return <GuardedPage key={page.path} component={page.component} path={path.value} />;
}

/** What is said of the service on every page. */
function ServiceMessages() {
  return (
    <div role="status" class="connection">
      {!isConnected.value && (
        <Message kind="warning">
          The connection to the service is lost. What you have typed is kept; it goes on by itself when the service is
          back.
        </Message>
      )}
      {isOutdated.value && (
        <Message kind="info">
          The service has been upgraded: load this page anew when it suits you. An order that is not sent yet is kept.{' '}
          <button class="link" type="button" onClick={() => location.reload()}>
            Load it anew
          </button>
        </Message>
      )}
    </div>
  );
}

/** Everything: the frame with a page in it, or the sign-in. */
export function Shell() {
  const of = session.value;
  if (of === 'unknown')
    return isConnected.value && cannotTell.value === undefined ? null : (
      <main class="sign-in" id="main">
        <Message kind="error">
          {isConnected.value ? cannotTell.value?.message : 'The service is not reached.'} This page goes on when it is
          back.
        </Message>
      </main>
    );
  if (of === undefined) return <SignInPage />;
  const page = findPage(of);
  return (
    <>
      <button class="skip" type="button" onClick={() => document.querySelector<HTMLElement>('#main')?.focus()}>
        Skip to the page
      </button>
      <header class="bar">
        <a class="brand" href={hrefOf('')} aria-label="tributary: New export">
          <BrandMark />
          <span class="brand-name">tributary</span>
        </a>
        <Navigation of={of} shown={page} />
        <UserMenu of={of} />
      </header>
      <ServiceMessages />
      <main id="main" tabIndex={-1}>
        <ShownPage page={page} />
      </main>
      {isSignedOut.value && !isShownOnce.value && <SignInDialog idUser={of.idUser} />}
    </>
  );
}
