# A STAND-IN for temporalio/server: the release's source, built by Go, and its own start script.
FROM holdfast-stand-in/alpine
COPY temporal-server /usr/local/bin/
COPY entrypoint.sh /etc/temporal/
WORKDIR /etc/temporal
USER temporal
CMD ["/etc/temporal/entrypoint.sh"]
